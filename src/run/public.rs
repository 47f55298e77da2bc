//! Datasets that stand on the hub.
//!
//! In: a plan that names one. Out: the plan with the file's path. Never: a download of what is in the hub's cache.

use super::RunError;
use crate::config::{DatasetSource, Plan};
use crate::report::tell;
use crate::tokenizer::{DatasetFile, Environment};

/// Finds the file of the plan's public dataset, in the hub's cache or on the hub; a plan without one stays as it is.
pub(super) fn fetch(plan: &mut Plan) -> Result<(), RunError> {
    let DatasetSource::File(file) = &mut plan.dataset.source else {
        return Ok(());
    };
    let Some(public) = &file.public else {
        return Ok(());
    };
    let wanted = DatasetFile {
        dataset: public.dataset,
        file: public.file,
    };
    let environment = Environment::from_process();
    file.path = match wanted.cached(&environment) {
        Some(path) => path,
        None => {
            if !environment.offline {
                tell(&format!(
                    "--public-dataset {}: downloading {} of {} from {}",
                    public.name, public.file, public.dataset, environment.hub
                ));
            }
            wanted.fetch(&environment).map_err(|reason| {
                RunError::PublicDataset(format!(
                    "--public-dataset {}: {} of {} {reason}; give a copy of it with --input-file",
                    public.name, public.file, public.dataset
                ))
            })?
        }
    };
    Ok(())
}
