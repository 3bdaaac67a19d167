//! Shares of a whole that add up to it exactly.

/// Shares of `total` in proportion to `weights`, which add up to it exactly: what rounding leaves goes, one each, to the largest
/// remainders, the first of equals first. All are zero where no weight is above zero.
pub fn share_out(total: i128, weights: &[i128]) -> Vec<i128> {
    let sum: i128 = weights.iter().sum();
    if sum <= 0 {
        return vec![0; weights.len()];
    }
    let mut shares: Vec<i128> = weights.iter().map(|weight| (total * weight).div_euclid(sum)).collect();
    let left = total - shares.iter().sum::<i128>();
    if left > 0 {
        let mut by_rest: Vec<(i128, usize)> =
            weights.iter().enumerate().map(|(at, weight)| (-(total * weight).rem_euclid(sum), at)).collect();
        by_rest.sort_unstable();
        for (_, at) in by_rest.iter().take(usize::try_from(left).unwrap_or(usize::MAX)) {
            if let Some(share) = shares.get_mut(*at) {
                *share += 1;
            }
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::share_out;

    /// 10 by 1, 1 and 1: 3 each, and the one that is left goes to the first. 7 by 2 and 1: 4.67 and 2.33, so 5 and 2.
    #[test]
    fn what_rounding_leaves_goes_to_the_largest_remainder() {
        assert_eq!(share_out(10, &[1, 1, 1]), [4, 3, 3]);
        assert_eq!(share_out(7, &[2, 1]), [5, 2]);
        assert_eq!(share_out(-7, &[2, 1]).iter().sum::<i128>(), -7);
        assert_eq!(share_out(5, &[0, 0]), [0, 0]);
        assert_eq!(share_out(5, &[0, 3]), [0, 5]);
    }
}
