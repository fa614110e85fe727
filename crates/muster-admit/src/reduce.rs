//! Partial admission: the most pods that will do.

/// One set of pods: how many it wants, and how few will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub count: i32,
    pub min: Option<i32>,
}

/// Searches by halves for the first step down at which `fits` answers; all sets go down together, in proportion to what they can give up.
pub fn search<T>(sets: &[Range], mut fits: impl FnMut(&[i32]) -> Option<T>) -> Option<T> {
    let spare: Vec<i64> =
        sets.iter().map(|s| i64::from(s.count) - i64::from(s.min.unwrap_or(s.count))).collect();
    let total: i64 = spare.iter().sum();
    if total <= 0 {
        return None;
    }
    let counts_at = |step: i64| -> Vec<i32> {
        let down = |(set, spare): (&Range, &i64)| {
            i32::try_from(i64::from(set.count) - spare * step / total).unwrap_or(set.count)
        };
        sets.iter().zip(&spare).map(down).collect()
    };
    let (mut low, mut high) = (0, total + 1);
    let mut best = None;
    while low < high {
        let step = low + (high - low) / 2;
        if step > total {
            break;
        }
        match fits(&counts_at(step)) {
            Some(found) => {
                best = Some(found);
                high = step;
            }
            None => low = step + 1,
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(sets: &[(i32, Option<i32>)], most: i32, expected: Option<&[i32]>) {
        let sets: Vec<Range> = sets.iter().map(|&(count, min)| Range { count, min }).collect();
        let found = search(&sets, |counts| (counts.iter().sum::<i32>() <= most).then(|| counts.to_vec()));
        assert_eq!(found.as_deref(), expected);
    }

    #[test]
    fn sets_go_down_together() {
        check(&[(5, Some(3)), (5, None)], 9, Some(&[4, 5]));
        check(&[(4, Some(2)), (4, Some(2))], 6, Some(&[3, 3]));
        check(&[(4, Some(2))], 1, None);
        check(&[(4, None)], 1, None);
        check(&[(4, Some(1))], 4, Some(&[4]));
    }
}
