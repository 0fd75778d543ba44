//! What a pick costs at 3, 100 and 3,000 destinations, each policy against itself in one run. Exits 1 when a policy that
//! promises a flat cost grows more than caches explain. `cargo bench --bench pick`

use derbent::balance::{BUILTIN, Balancer, Draw, Picker, Site, Tried};
use derbent::config::{Node, Problems, Role, Section, Spot};
use derbent::model::{Crowd, Destination, Dice, Endpoint, Live, Member, Outcome, RequestView, Scheme};
use http::{HeaderMap, Method};
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SIZES: [usize; 3] = [3, 100, 3_000];
const PICKS: u32 = 200_000;
const ROUNDS: usize = 7;
/// 3,000 destinations do not fit the nearest cache; the look at two of them costs that much more at most.
const MOST_GROWTH: f64 = 4.0;
const FLAT: [&str; 6] = ["PowerOfTwoChoices", "RoundRobin", "Random", "LeastRecentlyUsed", "PeakEwma", "Maglev"];

fn main() -> ExitCode {
    let mut grown = false;
    println!("{:<20} {:>10} {:>10} {:>10}   3,000 / 3", "ns per pick", SIZES[0], SIZES[1], SIZES[2]);
    for entry in BUILTIN {
        let at = Spot { file: "bench".into(), line: 1, column: 1, path: String::new() };
        let (node, mut problems) = (Node::empty_map(at), Problems::default());
        let site = Site { zone: Some("zone-0".into()) };
        let balancer = (entry.build)(&mut Section::of_map(&node, &mut problems), &site);
        let costs = SIZES.map(|size| {
            let set = members(size);
            heard(&*balancer, &set);
            best_of_rounds(&*balancer.prepare(&set), &set)
        });
        let growth = costs[2] / costs[0];
        let too_much = FLAT.contains(&entry.name) && growth > MOST_GROWTH;
        grown |= too_much;
        let verdict = if too_much { "  too much" } else { "" };
        println!("{:<20} {:>10.1} {:>10.1} {:>10.1}   {growth:.2}{verdict}", entry.name, costs[0], costs[1], costs[2]);
    }
    if grown { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Every destination has answered once, each in a time of its own.
fn heard(balancer: &dyn Balancer, set: &[Arc<Member>]) {
    let now = Instant::now();
    for member in set {
        balancer.learn(member, Outcome::Status(200), Duration::from_micros(member.index as u64), now);
    }
}

/// The least of several rounds: what else the machine does only ever adds.
fn best_of_rounds(picker: &dyn Picker, set: &[Arc<Member>]) -> f64 {
    let (tried, mut dice) = (Tried::default(), Dice::with_seed(1));
    let (method, headers) = (&Method::GET, &HeaderMap::new());
    let view = RequestView { method, host: "bench", port: None, path: "/", query: None, headers, client_ip: None };
    let round = |_| {
        let begun = Instant::now();
        for client in 0..PICKS {
            let request = RequestView { client_ip: Some(client.to_be_bytes().into()), ..view };
            let mut draw = Draw { request, tried: &tried, now: begun, dice: &mut dice };
            black_box(picker.pick(set, &mut draw));
        }
        begun.elapsed().as_nanos() as f64 / f64::from(PICKS)
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

fn members(size: usize) -> Vec<Arc<Member>> {
    let in_flight = Arc::new(Crowd::default());
    let member = |index: usize| Member {
        index,
        destination: Arc::new(Destination {
            id: format!("d{index}"),
            endpoint: Endpoint {
                scheme: Scheme::Http,
                host: "127.0.0.1".into(),
                port: 1,
                path: String::new(),
                socket: ([127, 0, 0, 1], 1).into(),
            },
            health_endpoint: None,
            host: None,
            weight: 1 + (index % 3) as u32,
            max_requests: None,
            enabled: true,
            role: Role::Primary,
            metadata: [("Zone".to_string(), format!("zone-{}", index % 2))].into(),
        }),
        live: Arc::new(Live::within(&in_flight)),
    };
    (0..size).map(|index| Arc::new(member(index))).collect()
}
