//! Medians and spreads.

/// Numbers of one kind, sorted.
#[derive(Debug, Clone)]
pub struct Sample(Vec<f64>);

impl Sample {
    /// A sample of at least one number, in any order.
    pub fn new(mut numbers: Vec<f64>) -> Sample {
        assert!(!numbers.is_empty(), "nothing was measured");
        numbers.sort_by(f64::total_cmp);
        Sample(numbers)
    }

    /// Element by element, `above / below`; both samples come from the same rounds.
    pub fn ratios(above: &[f64], below: &[f64]) -> Sample {
        assert_eq!(above.len(), below.len(), "measured in the same rounds");
        Sample::new(above.iter().zip(below).map(|(above, below)| above / below).collect())
    }

    /// The number below which `percent` of all numbers lie.
    pub fn percentile(&self, percent: f64) -> f64 {
        let last = self.0.len() - 1;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rank: not negative, and below the length"
        )]
        let rank = (last as f64 * percent / 100.0).round() as usize;
        self.0[rank.min(last)]
    }

    pub fn median(&self) -> f64 {
        self.percentile(50.0)
    }

    pub fn max(&self) -> f64 {
        self.percentile(100.0)
    }

    /// The median, and the middle 80 % in brackets.
    pub fn show(&self, unit: &str) -> String {
        let (low, high) = (self.percentile(10.0), self.percentile(90.0));
        let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
        format!("{}{unit} ({}–{})", digits(self.median()), digits(low), digits(high))
    }
}

/// Three significant digits, and at least all digits before the point.
pub fn digits(number: f64) -> String {
    match number.abs() {
        n if n >= 100.0 => format!("{number:.0}"),
        n if n >= 10.0 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}
