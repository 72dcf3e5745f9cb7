//! Where modules come from.

use arcstr::ArcStr;

use crate::host::Effect;
use crate::value::FrozenValue;

/// Where modules come from.
pub trait Loader {
    /// What `load(module, ...)` in the file `from` gives; `from` is empty for the program's own files.
    ///
    /// # Errors
    /// A message that says what is wrong with it.
    fn load(&self, module: &str, from: &str) -> Result<Loaded, String>;

    /// The worst effect of a method of this name on any host object of the program; `None` if no host
    /// object has such a method.
    fn effect(&self, method: &str) -> Option<Effect> {
        let _ = method;
        None
    }
}

/// What a module is.
#[derive(Debug)]
pub enum Loaded {
    /// A file.
    Source {
        /// Its name: the same file has the same name, however it was asked for.
        name: ArcStr,
        /// Its text.
        text: String,
    },
    /// Values of the host's.
    Values(Vec<(ArcStr, FrozenValue)>),
}
