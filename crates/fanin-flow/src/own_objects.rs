//! Upstreams and channels of some flows alone: compiled flows are shared, and what their calls leave behind is not.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use fanin_lang::HostRef;
use fanin_push::Channels;
use fanin_upstream::Upstreams;

use crate::kinds::UpstreamObject;
use crate::push::PushObject;
use crate::worker::StandIns;

/// What flows call in place of the objects that they were compiled with.
pub(crate) struct OwnObjects {
    upstreams: HashMap<Arc<str>, HostRef>,
    push: HostRef,
}

impl OwnObjects {
    /// These upstreams and channels in place of `compiled`, which has objects of the same configuration.
    pub(crate) fn new(compiled: &[HostRef], upstreams: &Upstreams, channels: &Arc<Channels>) -> OwnObjects {
        let own = compiled.iter().filter_map(|object| {
            let object = object.downcast::<UpstreamObject>()?;
            let upstream = upstreams.get(object.upstream.name())?;
            Some((upstream.name().clone(), HostRef::new(object.of(upstream.clone()))))
        });
        let push = PushObject(Arc::new(OnceLock::from(channels.clone())));
        OwnObjects { upstreams: own.collect(), push: HostRef::new(push) }
    }
}

impl StandIns for OwnObjects {
    fn of<'a>(&'a self, object: &'a HostRef) -> &'a HostRef {
        if object.downcast::<PushObject>().is_some() {
            return &self.push;
        }
        self.upstreams.get(object.name()).unwrap_or(object)
    }
}
