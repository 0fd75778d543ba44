//! Load balancing: what a policy does not heed.

use super::{Found, Judge, Rule};

/// Those of ours that do not draw by weight, or whose table a share that grows would upset. What a program added is taken
/// to heed it.
const IGNORING: [&str; 3] = ["FirstAlphabetical", "LeastRecentlyUsed", "Maglev"];

pub const SLOW_START_IGNORED: Rule = Rule {
    id: "slow-start-ignored",
    what: "`slow_start` beside a policy that ignores it",
    judge: Judge::Cluster(|case| {
        let policy = case.written.load_balancing.name.value.as_str();
        let ignored = !case.written.slow_start.is_zero() && IGNORING.contains(&policy);
        let found = || Found {
            at: case.written.places.spot_of("slow_start"),
            message: format!("{policy} ignores it: a destination that comes back gets its whole share at once"),
            fix: "leave `slow_start` out, or take a policy that draws by weight, such as PowerOfTwoChoices".to_owned(),
        };
        ignored.then(found).into_iter().collect()
    }),
};
