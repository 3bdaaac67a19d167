//! State of budgets and commitments after the pass. A change of a budget's stage is reported once.

use super::Draft;
use crate::limits::budget::{Budget, standing};
use crate::limits::usage::Usage;
use crate::plan::{Accounts, Note};
use crate::state::budget::Stage;

/// How budgets and commitments stand.
pub(super) fn accounts(draft: &mut Draft<'_>, usage: &Usage) -> Accounts {
    let budgets = standing(usage, draft.catalogue, draft.wall);
    for budget in &budgets {
        let before = draft.memory.budgets.get(&budget.of).copied().unwrap_or(Stage::Ample);
        if budget.stage != before {
            draft.notes.push(Note::Budget { budget: budget.clone(), before });
        }
    }
    let narrowed = budgets.iter().filter(|budget| budget.stage != Stage::Ample);
    draft.memory.budgets = narrowed.map(|Budget { of, stage, .. }| (of.clone(), *stage)).collect();
    Accounts {
        budgets,
        commitments: usage.committed.uses(&draft.catalogue.policy.commitments),
        floors: std::mem::take(&mut draft.floors_stand),
        kept: Vec::new(),
    }
}
