//! The builtins of the language, put together.

use crate::native::Globals;
use crate::{builtins, methods};

impl Default for Globals {
    fn default() -> Self {
        Self::standard()
    }
}

impl Globals {
    /// The builtins of the language.
    #[must_use]
    pub fn standard() -> Self {
        let mut globals = Self::empty();
        builtins::register(&mut globals);
        methods::register(&mut globals);
        globals
    }
}
