//! The list of `derbent ctl requests`.

use serde_json::Value;

/// `/api/v1/requests`: a line each, and one for each of its attempts.
pub fn list(body: &str) -> String {
    let answer: Value = serde_json::from_str(body).unwrap_or_default();
    let requests = answer["requests"].as_array().map_or(&[][..], Vec::as_slice);
    let mut text: String = requests.iter().map(request).collect();
    if requests.is_empty() {
        text += "none so far\n";
    }
    match answer["dropped"].as_u64() {
        None | Some(0) => text,
        Some(dropped) => text + &format!("{dropped} more came at the same moment as another, and were not kept\n"),
    }
}

fn request(request: &Value) -> String {
    let [time, method, path, status] = ["time", "method", "path", "status"].map(|key| cell(&request[key]));
    let mut line = format!("{time}  {method} {path}  {status} in {} ms", cell(&request["duration_ms"]));
    for (key, words) in [("failed", ""), ("route", "route "), ("cluster", "cluster "), ("request_id", "request ")] {
        if let Some(value) = request[key].as_str() {
            line += &format!(", {words}{value}");
        }
    }
    let attempts = request["attempts"].as_array().map_or(&[][..], Vec::as_slice);
    let names = attempts.iter().map(|attempt| cell(&attempt["destination"]).chars().count());
    let width = names.max().unwrap_or(0);
    let attempts = attempts.iter().map(|of| format!("  {:<width$}  {}\n", cell(&of["destination"]), attempt(of)));
    line + "\n" + &attempts.collect::<String>()
}

fn attempt(attempt: &Value) -> String {
    let connection = match (&attempt["connect_ms"], &attempt["reused"]) {
        (Value::Number(took), _) => format!(", connected in {took} ms"),
        (_, Value::Bool(true)) => ", over a kept connection".to_string(),
        _ => String::new(),
    };
    format!("{} after {} ms{connection}", cell(&attempt["outcome"]), cell(&attempt["waited_ms"]))
}

fn cell(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_requests_when_listed_then_a_line_each_and_one_for_each_attempt() {
        let body = r#"{"dropped":2,"requests":[
            {"time":"2026-11-30T01:15:00.123Z","listener":"web","client":"127.0.0.1","method":"GET","path":"/books","status":200,
             "duration_ms":12.345,"route":"books","cluster":"catalog","request_id":"0123","attempts":[
               {"destination":"catalog-2","address":"127.0.0.1:1","outcome":"refused","waited_ms":0.2},
               {"destination":"b","address":"127.0.0.1:2","outcome":503,"connect_ms":0.25,"waited_ms":1.0,"reused":false},
               {"destination":"a","address":"127.0.0.1:3","outcome":200,"waited_ms":9.5,"reused":true}]},
            {"time":"2026-11-30T01:15:00.000Z","method":"POST","path":"/","status":503,"duration_ms":0.1,"route":"books",
             "cluster":"catalog","request_id":"4","attempts":[],"failed":"no_destination"}]}"#;
        let expected = "\
2026-11-30T01:15:00.123Z  GET /books  200 in 12.345 ms, route books, cluster catalog, request 0123
  catalog-2  refused after 0.2 ms
  b          503 after 1.0 ms, connected in 0.25 ms
  a          200 after 9.5 ms, over a kept connection
2026-11-30T01:15:00.000Z  POST /  503 in 0.1 ms, no_destination, route books, cluster catalog, request 4
2 more came at the same moment as another, and were not kept
";
        assert_eq!(list(body), expected);
        assert_eq!(list(r#"{"dropped":0,"requests":[]}"#), "none so far\n");
    }
}
