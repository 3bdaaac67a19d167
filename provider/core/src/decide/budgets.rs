//! State of budgets and commitments after the pass. A change of a budget's stage is reported once.
//! What is spent of a month is counted from pass to pass.

use std::sync::Arc;

use super::pass::{Changes, Pass};
use crate::limits::budget::{Budget, standing};
use crate::limits::month::next_hour;
use crate::limits::usage::Usage;
use crate::plan::{Accounts, Note};
use crate::policy::Policy;
use crate::policy::rules::month::MonthBudget;
use crate::state::budget::{BudgetOf, MonthSpend, Stage};

/// Works out anew, once an hour, what is left of each monthly budget. Before anything is bought, so that the pass buys by the new rates.
pub(super) fn turn_hours<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>) {
    let budgets = monthly(&pass.catalogue.policy);
    if budgets.is_empty() && changes.memory.months.is_empty() {
        return;
    }
    changes.memory.months.retain(|of, _| budgets.iter().any(|(name, _)| name == of));
    for (of, budget) in &budgets {
        let known = changes.memory.months.get(of);
        let turned = match known {
            None => Some(MonthSpend::first(*budget, pass.wall)),
            Some(known) => known.turned(pass.wall),
        };
        if let Some(turned) = turned {
            changes.memory.months.insert(of.clone(), Arc::new(turned));
        }
    }
    if !budgets.is_empty() {
        changes.look_again_on_wall(pass, next_hour(pass.wall));
    }
}

/// The monthly budgets of a policy.
fn monthly(policy: &Policy) -> Vec<(BudgetOf, MonthBudget)> {
    let of_pools = policy.pools.iter().filter_map(|pool| Some((BudgetOf::Pool(pool.name.clone()), pool.limits.month?)));
    of_pools.chain(policy.month.map(|month| (BudgetOf::All, month))).collect()
}

/// Notes at what rate each monthly budget is spent from now on.
fn count_months(pass: &Pass<'_>, changes: &mut Changes<'_>, usage: &Usage) {
    for (of, known) in &mut changes.memory.months {
        let rate = of.pool().map_or_else(|| usage.total_cash(), |pool| usage.cash(pool));
        if let Some(changed) = known.at_rate(rate, pass.wall) {
            *known = Arc::new(changed);
        }
    }
}

/// How budgets and commitments stand.
pub(super) fn accounts<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>, usage: &Usage) -> Accounts {
    count_months(pass, changes, usage);
    let budgets = standing(usage, pass.catalogue, pass.wall);
    for budget in &budgets {
        let before = changes.memory.budgets.get(&budget.of).copied().unwrap_or(Stage::Ample);
        if budget.stage != before {
            changes.notes.push(Note::Budget { budget: budget.clone(), before });
        }
    }
    let narrowed = budgets.iter().filter(|budget| budget.stage != Stage::Ample);
    changes.memory.budgets = narrowed.map(|Budget { of, stage, .. }| (of.clone(), *stage)).collect();
    Accounts {
        budgets,
        commitments: usage.committed.uses(&pass.catalogue.policy.commitments),
        floors: std::mem::take(&mut changes.floors_stand),
        kept: Vec::new(),
    }
}
