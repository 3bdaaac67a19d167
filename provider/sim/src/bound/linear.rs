//! Linear programs in one form, and the solvers that solve them.
//!
//! The form is: maximise `gain · x` where `0 ≤ x ≤ most` and every row `terms · x ≤ limit`.
//! A solver sees columns and rows in the order of their creation, so a program is solved the same way every time.

use std::fmt;

/// Solver of linear programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Solver {
    /// microlp, in Rust. It handles thousands of columns, not tens of thousands.
    Microlp,
    /// `HiGHS`, in C++.
    #[cfg(feature = "highs")]
    Highs,
}

impl Default for Solver {
    /// The fastest solver of this build.
    fn default() -> Self {
        #[cfg(feature = "highs")]
        return Self::Highs;
        #[cfg(not(feature = "highs"))]
        Self::Microlp
    }
}

impl fmt::Display for Solver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Microlp => "microlp",
            #[cfg(feature = "highs")]
            Self::Highs => "HiGHS",
        })
    }
}

/// A linear program without an optimum, or one that the solver could not finish.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{solver} did not solve a linear program of {columns} columns and {rows} rows: {reason}")]
pub struct Unsolved {
    /// Solver that was used.
    pub solver: Solver,
    /// Columns of the program.
    pub columns: usize,
    /// Rows of the program.
    pub rows: usize,
    /// The solver's own words.
    pub reason: String,
}

/// Index of a column in its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Column(usize);

/// Program under construction.
#[derive(Debug, Clone, Default)]
pub(super) struct Program {
    /// Gain and upper limit of each column.
    columns: Vec<(f64, f64)>,
    rows: Vec<(Vec<(Column, f64)>, f64)>,
}

/// Optimal solution.
#[derive(Debug, Clone)]
pub(super) struct Optimum {
    /// Objective.
    pub(super) gain: f64,
    values: Vec<f64>,
}

impl Optimum {
    pub(super) fn value(&self, column: Column) -> f64 {
        self.values.get(column.0).copied().unwrap_or(0.0)
    }
}

impl Program {
    /// Adds a variable from zero to `most`, which may be infinite.
    pub(super) fn column(&mut self, gain: f64, most: f64) -> Column {
        self.columns.push((gain, most));
        Column(self.columns.len() - 1)
    }

    /// Adds the row `terms · x ≤ limit`. A column occurs at most once in it.
    pub(super) fn at_most(&mut self, terms: Vec<(Column, f64)>, limit: f64) {
        self.rows.push((terms, limit));
    }

    /// Adds the row `terms · x ≥ limit`. A column occurs at most once in it.
    pub(super) fn at_least(&mut self, mut terms: Vec<(Column, f64)>, limit: f64) {
        for (_, factor) in &mut terms {
            *factor = -*factor;
        }
        self.at_most(terms, -limit);
    }

    /// Solves the program.
    pub(super) fn solve(&self, solver: Solver) -> Result<Optimum, Unsolved> {
        match solver {
            Solver::Microlp => self.by_microlp(),
            #[cfg(feature = "highs")]
            Solver::Highs => self.by_highs(),
        }
        .map_err(|reason| Unsolved { solver, columns: self.columns.len(), rows: self.rows.len(), reason })
    }

    fn by_microlp(&self) -> Result<Optimum, String> {
        let mut problem = microlp::Problem::new(microlp::OptimizationDirection::Maximize);
        let variables: Vec<_> = self.columns.iter().map(|(gain, most)| problem.add_var(*gain, (0.0, *most))).collect();
        for (terms, limit) in &self.rows {
            let terms = terms.iter().filter_map(|(column, factor)| Some((*variables.get(column.0)?, *factor)));
            problem.add_constraint(terms.collect::<Vec<_>>(), microlp::ComparisonOp::Le, *limit);
        }
        let outcome = problem.solve().map_err(|error| error.to_string())?;
        let solution = outcome.solution().ok_or("stopped before an optimum")?;
        let values = variables.iter().map(|variable| solution.var_value(*variable)).collect();
        Ok(Optimum { gain: solution.objective(), values })
    }

    #[cfg(feature = "highs")]
    fn by_highs(&self) -> Result<Optimum, String> {
        let mut problem = highs::RowProblem::default();
        let columns: Vec<_> = self.columns.iter().map(|(gain, most)| problem.add_column(*gain, 0.0..=*most)).collect();
        for (terms, limit) in &self.rows {
            let terms = terms.iter().filter_map(|(column, factor)| Some((*columns.get(column.0)?, *factor)));
            problem.add_row(..=*limit, terms.collect::<Vec<_>>());
        }
        let failed = |status| format!("{status:?}");
        let mut model = problem.try_optimise(highs::Sense::Maximise).map_err(failed)?;
        model.try_set_option("threads", 1).map_err(|error| error.to_string())?;
        let solved = model.try_solve().map_err(failed)?;
        match solved.status() {
            highs::HighsModelStatus::Optimal => {
                Ok(Optimum { gain: solved.objective_value(), values: solved.get_solution().columns().to_vec() })
            }
            status => Err(format!("{status:?}")),
        }
    }
}
