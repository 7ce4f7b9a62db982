//! What holds for a provider and between two books.

use std::collections::BTreeMap;

use souk_protocol::{Capacity, Credits, LeaseId, NodeId, Party};

use crate::{books::Books, provider::Provider, record::Record};

/// Nothing is sold twice: what leases hold adds up, and is no more than what is on sale.
///
/// # Errors
/// What is sold twice. A total that the owner lowered below what is leased counts as such.
pub fn no_oversell(provider: &Provider) -> Result<(), String> {
    let desk = provider.desk();
    let (used, total) = (desk.used(), desk.total());
    let sum =
        |amount: fn(&Capacity) -> u64| desk.taken().try_fold(0u64, |sum, (_, taken)| sum.checked_add(amount(taken)));
    let sums = [sum(|taken| taken.cpu.0), sum(|taken| taken.memory.0), sum(|taken| taken.disk.0)];
    let useds = [used.cpu.0, used.memory.0, used.disk.0];
    if sums != useds.map(Some) {
        return Err(format!("the leases hold {sums:?}, the desk says {useds:?}"));
    }
    // Before the policy is known, after a restart, nothing is on sale, but leases hold what they held.
    let known = desk.policy().is_some();
    if known && (used.cpu > total.cpu || used.memory > total.memory || used.disk > total.disk) {
        return Err(format!("used {used:?} of {total:?}"));
    }
    Ok(())
}

/// No peer can cost more than its limit, and all strangers together no more than theirs.
///
/// # Errors
/// Who can.
pub fn exposure_within_limits(books: &Books) -> Result<(), String> {
    for peer in books.peers() {
        let (exposure, (limit, name)) = (books.exposure(&peer), books.limit_of(&peer));
        if exposure > limit {
            return Err(format!("{} may cost {exposure}, {name} is {limit}", peer.short()));
        }
    }
    let (sum, limit) = (books.strangers(), books.limits().strangers);
    if sum > limit { Err(format!("strangers may cost {sum}, their limit is {limit}")) } else { Ok(()) }
}

/// The two books of a pair agree. A provider never knows of more than the renter signed; when all is `quiet`, nothing
/// under way and nobody crashed, it knows of just that.
///
/// # Errors
/// On which lease they differ.
pub fn books_agree(a: &Books, b: &Books, quiet: bool) -> Result<(), String> {
    let nodes: [NodeId; 2] = [a.me(), b.me()];
    for (provider, renter) in [(a, b), (b, a)] {
        for sold in provider.leases().filter(|sum| sum.side == Party::Provider && sum.peer == renter.me()) {
            let id = sold.lease;
            let Some(bought) = renter.lease(&id, Party::Renter) else {
                if sold.number == 0 {
                    continue; // an acceptance that the renter did not take
                }
                return Err(format!("lease {}: only {} knows of it", id.short(), provider.me().short()));
            };
            let same = sold.number == bought.number && sold.worth.vouchered == bought.worth.vouchered;
            let behind = sold.number < bought.number && sold.worth.vouchered <= bought.worth.vouchered;
            if !same && (quiet || !behind) {
                return Err(format!(
                    "lease {}: voucher {} over {} was signed, voucher {} over {} is held",
                    id.short(),
                    bought.number,
                    bought.worth.vouchered,
                    sold.number,
                    sold.worth.vouchered
                ));
            }
        }
    }
    if quiet && a.balance(&nodes[1]).0 != b.balance(&nodes[0]).0.saturating_neg() {
        return Err(format!("balances {} and {}", a.balance(&nodes[1]), b.balance(&nodes[0])));
    }
    Ok(())
}

/// In a journal the vouchers of each lease are numbered without a gap, and their totals never fall.
///
/// # Errors
/// Which voucher is out of line.
pub fn vouchers_monotone<'a>(journal: impl IntoIterator<Item = &'a Record>) -> Result<(), String> {
    // A node that rents of itself writes each voucher twice, once in each role.
    let mut last: BTreeMap<(LeaseId, bool), (u32, Credits)> = BTreeMap::new();
    for record in journal {
        let (voucher, sold) = match record {
            Record::Result { voucher: Some(voucher), .. } => (voucher, false),
            Record::Settled { voucher: Some(voucher), .. } => (voucher, true),
            _ => continue,
        };
        let voucher = voucher.peek().map_err(|error| format!("a voucher cannot be read: {error}"))?;
        let (number, total) = last.entry((voucher.lease, sold)).or_default();
        if Some(voucher.number) != number.checked_add(1) || voucher.total < *total {
            return Err(format!(
                "lease {}: voucher {} over {} after voucher {number} over {total}",
                voucher.lease.short(),
                voucher.number,
                voucher.total
            ));
        }
        (*number, *total) = (voucher.number, voucher.total);
    }
    Ok(())
}
