//! A cookie whose value is the same for a destination each time, and so is there before the first request.

use super::cookie::Cookie;
use super::keys::Keys;
use super::{Affinity, Answer, Recall, Scope};
use crate::config::Section;
use crate::model::RequestView;
use http::{HeaderMap, HeaderName, HeaderValue};

struct Prepared {
    cookie: Cookie,
    keys: Keys,
    /// By the destination's index.
    values: Vec<String>,
}

/// `value` makes a destination's of its id.
pub fn build(params: &mut Section<'_>, scope: &Scope<'_>, value: fn(&str) -> String) -> Box<dyn Affinity> {
    let cookie = Cookie::read(params, scope.key_name);
    let values: Vec<String> = scope.ids.iter().map(|id| value(id)).collect();
    let keys = Keys::new(&values, params, scope);
    Box::new(Prepared { cookie, keys, values })
}

impl Affinity for Prepared {
    fn recall(&self, request: &RequestView<'_>) -> Recall {
        self.cookie.value(request.headers).map_or(Recall::Unset, |value| self.keys.find(&value))
    }

    fn remember(&self, index: usize, answer: &Answer) -> Option<(HeaderName, HeaderValue)> {
        self.cookie.set(self.values.get(index)?, answer)
    }

    fn withhold(&self, headers: &HeaderMap) -> Option<(HeaderName, Option<HeaderValue>)> {
        self.cookie.withhold(headers)
    }
}
