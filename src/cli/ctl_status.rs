//! The table of `derbent ctl status`.

use serde_json::Value;

const PRIMARY: &str = "primary";

/// One cluster of `/api/v1/clusters/NAME`, or all of `/api/v1/clusters`.
pub fn table(body: &str) -> String {
    let answer: Value = serde_json::from_str(body).unwrap_or_default();
    let clusters = answer["clusters"].as_array();
    let clusters = clusters.map_or(std::slice::from_ref(&answer), Vec::as_slice);
    let mut parts: Vec<String> = clusters.iter().map(cluster).collect();
    parts.extend(leaving(list(&answer["leaving"])));
    parts.join("\n")
}

/// What is left of destinations on their leave, those included that a reload removed.
fn leaving(all: &[Value]) -> Option<String> {
    let header = ["CLUSTER", "DESTINATION", "REASON", "FOR", "IN FLIGHT", "CONNECTIONS"].map(str::to_string);
    let row = |of: &Value| {
        let [cluster, destination, reason, in_flight, connections] =
            ["cluster", "destination", "reason", "in_flight", "connections"].map(|key| cell(&of[key]));
        let lasts = of["for_s"].as_f64().map_or("-".to_string(), |seconds| format!("{seconds:.0}s"));
        [cluster, destination, reason, lasts, in_flight, connections]
    };
    (!all.is_empty()).then(|| format!("leaving:\n{}", aligned(header, all.iter().map(row))))
}

fn cluster(cluster: &Value) -> String {
    let destinations = list(&cluster["destinations"]);
    let primaries = destinations.iter().filter(|destination| role(destination) == PRIMARY);
    let mut head =
        format!("{}: {} of {} available", cell(&cluster["name"]), cell(&cluster["available"]), primaries.count());
    for (key, words) in [("ejected", "ejected"), ("half_open", "half-open")] {
        let count = cluster[key].as_u64().unwrap_or(0);
        if count > 0 {
            head += &format!(", {count} {words}");
        }
    }
    if cluster["panic"] == true {
        head += ", in panic";
    }
    if cluster["canary"].is_object() {
        head += &format!(", {}", canary(&cluster["canary"]));
    }
    let header = ["DESTINATION", "STATE", "SINCE", "IN FLIGHT", "WEIGHT", "WHY"].map(str::to_string);
    format!("{head}\n{}", aligned(header, destinations.iter().map(row)))
}

fn aligned(header: [String; 6], rows: impl Iterator<Item = [String; 6]>) -> String {
    let rows: Vec<[String; 6]> = std::iter::once(header).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    let mut text = String::new();
    for row in &rows {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text += &format!("  {}\n", cells.join("  ").trim_end());
    }
    text
}

fn role(destination: &Value) -> &str {
    destination["role"].as_str().unwrap_or(PRIMARY)
}

/// `canary 5%, by order, resting for 12s`
fn canary(canary: &Value) -> String {
    let mut text = format!("canary {}%", cell(&canary["percent"]).trim_end_matches(".0"));
    if canary["ordered"] == true {
        text += " by order";
    }
    if let Some(left) = canary["cooldown_left_s"].as_f64() {
        text += &format!(", resting for {left:.0}s");
    }
    text
}

fn row(destination: &Value) -> [String; 6] {
    let since = destination["since"].as_str().map_or("-".to_string(), |since| match since.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => since.to_string(),
    });
    let [id, state, in_flight, weight] =
        ["id", "state", "in_flight", "effective_weight"].map(|key| cell(&destination[key]));
    let id = if role(destination) == PRIMARY { id } else { format!("{id} ({})", role(destination)) };
    [id, state, since, in_flight, weight.trim_end_matches(".0").to_string(), why(destination)]
}

/// Why it is out, and orders that hold.
fn why(destination: &Value) -> String {
    let out = !list(&destination["marks"]).is_empty();
    let rule = out.then(|| cell(&destination["why"]));
    let weight = list(&destination["overrides"]).iter().map(|held| cell(&held["order"]));
    let orders = weight.filter(|order| order.starts_with("weight")).map(|order| format!("{order} (operator)"));
    rule.into_iter().chain(orders).collect::<Vec<_>>().join("; ")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn cell(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_clusters_when_shown_then_a_row_each_with_what_is_held_against_it() {
        let body = r#"{"clusters":[{"name":"catalog","panic":true,"available":1,"ejected":1,"half_open":0,"destinations":[
            {"id":"catalog-1","state":"unhealthy","since":"2026-11-30T03:11:54.123Z","marks":["passive"],
             "why":"ConsecutiveFailures (failures 5): failures in a row 5 ≥ 5, and so on until nobody reads it",
             "in_flight":0,"effective_weight":1.0,"overrides":[]},
            {"id":"b","state":"ramping","since":null,"marks":[],"why":"trial passed","in_flight":12,
             "effective_weight":0.5,"overrides":[{"order":"weight 5"}]}]}],
            "leaving":[{"cluster":"catalog","destination":"catalog-3","address":"localhost:5303","reason":"removed",
             "for_s":12.4,"in_flight":1,"connections":3}]}"#;
        let expected = "catalog: 1 of 2 available, 1 ejected, in panic
  DESTINATION  STATE      SINCE                 IN FLIGHT  WEIGHT  WHY
  catalog-1    unhealthy  2026-11-30T03:11:54Z  0          1       ConsecutiveFailures (failures 5): failures in a row 5 ≥ 5, and so on until nobody reads it
  b            ramping    -                     12         0.5     weight 5 (operator)

leaving:
  CLUSTER  DESTINATION  REASON   FOR  IN FLIGHT  CONNECTIONS
  catalog  catalog-3    removed  12s  1          3
";
        assert_eq!(table(body), expected);
    }
}
