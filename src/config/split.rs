//! `split` of a route: clusters that share its requests, exactly by weight.

use super::{Located, Node, Problems, Section};

/// A cluster's part of the requests of a route.
#[derive(Debug, Clone, PartialEq)]
pub struct Share {
    pub cluster: Located<String>,
    /// So many of as many requests in a row as all weights come to, which is at most 1000. What the weights written have in
    /// common is divided out.
    pub weight: u32,
}

/// A whole turn of all weights.
const MOST: u64 = 1000;

/// At least one share, and one weight above 0; `None` when there is none, or a fault.
pub(super) fn shares(section: &mut Section<'_>) -> Option<Vec<Share>> {
    let items = section.list("split");
    if !section.has("split") {
        return None;
    }
    section.miss_empty("split", "`{ cluster: app, weight: 95 }`");
    let read: Vec<Share> = items.iter().filter_map(|item| share(item, section.problems())).collect();
    // One that is faulty leaves nothing to be said of them all.
    if read.is_empty() || read.len() < items.len() {
        return None;
    }
    for (index, Share { cluster, .. }) in read.iter().enumerate() {
        if read[..index].iter().any(|before| before.cluster.value == cluster.value) {
            section
                .problem(&cluster.at, format!("\"{}\" is there already; a split has each cluster once", cluster.value));
        }
    }
    reduced(read).map_err(|message| section.problem(&section.spot_of("split"), message)).ok()
}

fn share(item: &Node, problems: &mut Problems) -> Option<Share> {
    let mut section = Section::of_map(item, problems);
    section.require("cluster", "the name of a cluster");
    section.require("weight", "its part of the requests, such as 95");
    let cluster = section.text("cluster");
    let weight = section.integer("weight", 0..=MOST).and_then(|weight| u32::try_from(weight).ok());
    section.finish();
    Some(Share { cluster: cluster?, weight: weight? })
}

fn reduced(mut shares: Vec<Share>) -> Result<Vec<Share>, String> {
    let common = shares.iter().fold(0, |common, share| greatest_common_divisor(common, share.weight));
    if common == 0 {
        return Err("all weights are 0: expected one above it".to_owned());
    }
    shares.iter_mut().for_each(|share| share.weight /= common);
    match shares.iter().map(|share| u64::from(share.weight)).sum::<u64>() {
        0..=MOST => Ok(shares),
        sum => Err(format!(
            "the weights come to {sum}, divided by what they have in common: expected at most {MOST}, as of percents"
        )),
    }
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use crate::config::{Action, Config, LoadError};

    fn config(route: &str) -> Result<Config, LoadError> {
        let text = format!(
            "listeners: {{ web: 0.0.0.0:1 }}\nclusters: {{ c: {{ destinations: [\"http://a\"] }} }}\nroutes: {{ r: {{ {route} }} }}\n"
        );
        Config::parse("t.yaml", &text)
    }

    fn weights(split: &str) -> Vec<(String, u32)> {
        let config = config(&format!("split: {split}")).unwrap_or_else(|faults| panic!("{faults}"));
        let Action::Split(shares) = &config.routes[0].action else { panic!("a split") };
        shares.iter().map(|share| (share.cluster.value.clone(), share.weight)).collect()
    }

    #[test]
    fn given_weights_when_read_then_what_they_have_in_common_is_divided_out() {
        let read = |written: [u32; 3]| {
            let [a, b, c] = written;
            let split = format!(
                "[{{ cluster: a, weight: {a} }}, {{ cluster: b, weight: {b} }}, {{ cluster: c, weight: {c} }}]"
            );
            weights(&split).into_iter().map(|(_, weight)| weight).collect::<Vec<u32>>()
        };
        assert_eq!(
            weights("[{ cluster: a, weight: 95 }, { cluster: b, weight: 5 }]"),
            [("a".into(), 19), ("b".into(), 1)]
        );
        assert_eq!(read([500, 0, 1000]), [1, 0, 2]);
        assert_eq!(read([999, 1, 0]), [999, 1, 0]);
        assert_eq!(read([7, 0, 0]), [1, 0, 0]);
        assert_eq!(read([1000, 1000, 1000]), [1, 1, 1]);
    }

    #[test]
    fn given_a_wrong_split_when_read_then_one_fault_at_its_place() {
        let one = "{ cluster: a, weight: 1 }";
        for (written, fault) in [
            ("split: []".into(), "split: needs at least one, such as `{ cluster: app, weight: 95 }`"),
            ("split: a".into(), "split: expected a list; found \"a\""),
            ("split: [{ cluster: a }]".into(), "split[0]: needs `weight`: its part of the requests, such as 95"),
            (format!("split: [{one}, {{ weight: 1 }}]"), "split[1]: needs `cluster`: the name of a cluster"),
            (
                "split: [{ cluster: a, weight: 1001 }]".into(),
                "split[0].weight: expected a whole number from 0 to 1000; found \"1001\"",
            ),
            (
                "split: [{ cluster: a, weight: 1, weigth: 1 }]".into(),
                "split[0].weigth: unknown key \"weigth\"; did you mean \"weight\"?",
            ),
            (
                format!("split: [{one}, {one}]"),
                "split[1].cluster: \"a\" is there already; a split has each cluster once",
            ),
            (
                "split: [{ cluster: a, weight: 0 }, { cluster: b, weight: 0 }]".into(),
                "split: all weights are 0: expected one above it",
            ),
            (
                "split: [{ cluster: a, weight: 1000 }, { cluster: b, weight: 1 }]".into(),
                "split: the weights come to 1001, divided by what they have in common: expected at most 1000",
            ),
            (format!("cluster: c, split: [{one}]"), "split: `cluster` is there too; a route has one of them"),
        ] {
            let Err(LoadError::Faults(faults)) = config(&written) else { panic!("no fault: {written}") };
            let found: Vec<String> = faults.iter().map(ToString::to_string).collect();
            let [found] = &found[..] else { panic!("{written}\n{faults}") };
            assert!(found.contains(&format!(": routes.r.{fault}")), "{written}\n{found}");
        }
    }

    #[test]
    fn given_a_split_when_transforms_stand_beside_it_then_they_are_those_of_requests_to_any_of_its_clusters() {
        let split = "split: [{ cluster: c, weight: 1 }], transforms: [{ path_remove_prefix: /api }]";
        let config = config(split).unwrap_or_else(|faults| panic!("{faults}"));
        assert_eq!(config.routes[0].transforms.len(), 1);
    }
}
