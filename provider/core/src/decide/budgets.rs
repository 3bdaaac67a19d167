//! State of budgets and commitments after the pass. A change of a budget's stage is reported once.

use super::pass::{Changes, Pass};
use crate::limits::budget::{Budget, standing};
use crate::limits::usage::Usage;
use crate::plan::{Accounts, Note};
use crate::state::budget::Stage;

/// How budgets and commitments stand.
pub(super) fn accounts<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>, usage: &Usage) -> Accounts {
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
