use super::Spot;

/// One fault in what the operator wrote.
#[derive(Debug, Clone)]
pub struct Problem {
    pub at: Spot,
    /// What is wrong, what was expected, how to mend it; one sentence or two.
    pub message: String,
}
