//! What a rehearsal counts: each kind of client apart, each kind of loss apart, as one table or one JSON object.

use super::loss::Loss;
use super::mix::Kind;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

#[derive(Debug, Default, Clone)]
pub struct Count {
    answered: u64,
    losses: BTreeMap<Loss, u64>,
    /// Streams that the server had refused unprocessed, sent once more: no loss.
    pub sent_again: u64,
    pub connections: u64,
    /// Connections that an answer said would close, or a GOAWAY.
    pub told_to_close: u64,
    /// Kept connections that were closed before anything was written on them: no loss.
    pub closed_idle: u64,
    slowest: Duration,
}

impl Count {
    /// One request that ended.
    pub fn ended(&mut self, outcome: Result<(), Loss>, took: Duration) {
        self.slowest = self.slowest.max(took);
        match outcome {
            Ok(()) => self.answered += 1,
            Err(loss) => *self.losses.entry(loss).or_default() += 1,
        }
    }

    fn lost(&self) -> u64 {
        self.losses.values().sum()
    }

    fn of_kind(&self, kind: &str) -> u64 {
        self.losses.iter().filter(|(loss, _)| loss.kind() == kind).map(|(_, count)| count).sum()
    }

    fn add(&mut self, other: &Count) {
        self.answered += other.answered;
        for (loss, count) in &other.losses {
            *self.losses.entry(*loss).or_default() += count;
        }
        self.sent_again += other.sent_again;
        self.connections += other.connections;
        self.told_to_close += other.told_to_close;
        self.closed_idle += other.closed_idle;
        self.slowest = self.slowest.max(other.slowest);
    }

    fn json(&self) -> Value {
        let losses: Map<String, Value> =
            Loss::KINDS.iter().map(|kind| ((*kind).to_owned(), self.of_kind(kind).into())).collect();
        json!({
            "requests": self.answered + self.lost(),
            "answered": self.answered,
            "lost": self.lost(),
            "losses": losses,
            "statuses": self.statuses(),
            "sent_again": self.sent_again,
            "connections": self.connections,
            "told_to_close": self.told_to_close,
            "closed_idle": self.closed_idle,
            "slowest_ms": self.slowest.as_millis() as u64,
        })
    }

    fn statuses(&self) -> BTreeMap<u16, u64> {
        let statuses = self.losses.iter().filter_map(|(loss, count)| match loss {
            Loss::Status(code) => Some((*code, *count)),
            _ => None,
        });
        statuses.collect()
    }

    fn row(&self, name: &str) -> Vec<String> {
        let losses = Loss::KINDS.iter().map(|kind| self.of_kind(kind).to_string());
        let front = [name.to_owned(), (self.answered + self.lost()).to_string(), self.lost().to_string()];
        let rest = [self.sent_again, self.connections, self.told_to_close, self.closed_idle];
        let slowest = format!("{} ms", self.slowest.as_millis());
        front.into_iter().chain(losses).chain(rest.map(|count| count.to_string())).chain([slowest]).collect()
    }
}

#[derive(Debug, Default)]
pub struct Ledger(BTreeMap<Kind, Count>);

impl Ledger {
    pub fn of(&mut self, kind: Kind) -> &mut Count {
        self.0.entry(kind).or_default()
    }

    pub fn requests(&self) -> u64 {
        self.0.values().map(|count| count.answered + count.lost()).sum()
    }

    pub fn lost(&self) -> u64 {
        self.0.values().map(Count::lost).sum()
    }

    pub fn json(&self, took: Duration) -> Value {
        let mut all = self.all().json();
        all["seconds"] = took.as_secs_f64().into();
        all["mix"] =
            self.0.iter().map(|(kind, count)| (kind.name().to_owned(), count.json())).collect::<Map<_, _>>().into();
        all
    }

    fn all(&self) -> Count {
        let mut all = Count::default();
        self.0.values().for_each(|count| all.add(count));
        all
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.all();
        let head = ["clients", "requests", "lost"].into_iter().chain(Loss::KINDS);
        let head = head.chain(["sent again", "connections", "told to close", "closed idle", "slowest"]);
        let mut rows = vec![head.map(str::to_owned).collect::<Vec<_>>()];
        rows.extend(self.0.iter().map(|(kind, count)| count.row(kind.name())));
        rows.push(all.row("all"));
        let width = |at: usize| rows.iter().map(|row| row[at].len()).max().unwrap_or_default();
        for row in &rows {
            write!(f, "{:<1$}", row[0], width(0))?;
            for (at, cell) in row.iter().enumerate().skip(1) {
                write!(f, "  {cell:>0$}", width(at))?;
            }
            writeln!(f)?;
        }
        for (status, count) in all.statuses() {
            writeln!(f, "status {status} {count}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_requests_of_two_kinds_when_told_then_each_loss_stands_in_its_row_and_column() {
        let mut ledger = Ledger::default();
        let ms = Duration::from_millis;
        ledger.of(Kind::Reuse).ended(Ok(()), ms(3));
        ledger.of(Kind::Reuse).ended(Err(Loss::EofReused), ms(9));
        ledger.of(Kind::Http2).sent_again = 2;
        for status in [503, 502, 503] {
            ledger.of(Kind::Http2).ended(Err(Loss::Status(status)), ms(1));
        }
        assert_eq!((ledger.requests(), ledger.lost()), (5, 4));
        let told = ledger.json(Duration::from_secs(2));
        assert_eq!(
            (&told["lost"], &told["losses"]["status"], &told["statuses"]["503"]),
            (&4.into(), &3.into(), &2.into())
        );
        assert_eq!((&told["mix"]["reuse"]["losses"]["eof_reused"], &told["sent_again"]), (&1.into(), &2.into()));
        assert_eq!(told["slowest_ms"], 9);
        let text = ledger.to_string();
        let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[1][..8], ["reuse", "2", "1", "0", "0", "0", "1", "0"], "{text}");
        assert_eq!(words[3][..3], ["all", "5", "4"], "{text}");
        assert!(text.ends_with("status 502 1\nstatus 503 2\n"), "{text}");
    }
}
