//! `model` of an upstream: a model that this process serves.

use crate::models::Models;
use crate::reader::Table;

/// Reads `model`. The repository must have the model; its versions may be invalid.
pub(super) fn read(table: &mut Table<'_, '_>, models: Option<&Models>) -> Option<String> {
    let name = table.parsed("model", "the name of a model", |name| match name {
        name if name.is_empty() || name.starts_with('.') || name.contains('/') => {
            Err(format!("`{name}` is not a valid name of a model; write the name of its folder"))
        }
        name => Ok(name.to_owned()),
    })?;
    match models {
        None => table.error("model", "needs the section [models] with the `repository` of the models"),
        // A missing repository is reported at its own key.
        Some(models) if !models.repository.is_dir() || models.repository.join(&name.value).is_dir() => {}
        Some(models) => {
            let known = models.names();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let repository = models.repository.display();
            table.error(
                "model",
                format_args!("there is no model `{}` in {repository}; existing models: {known}", name.value),
            );
        }
    }
    Some(name.value)
}
