//! The verbs: which connection each goes over, who may ask, and which handler serves it.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use reactor::Group;
use wire::node::fault::Fault;
use wire::node::frame::{Verb, WorkGroup};
use wire::node::hello::Class;

use super::serve::Request;

/// An answer, or why there is none.
pub type Answer = Result<Vec<u8>, Fault>;

/// The work on one request.
pub type Work = Pin<Box<dyn Future<Output = Answer>>>;

type Handler = Rc<dyn Fn(Request) -> Work>;

/// Facts about a verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct VerbFacts {
    /// The connection for it; `None` if the group of the request decides between statement and bulk.
    pub(super) class: Option<Class>,
    /// Whether a node that is no member may ask.
    pub(super) for_strangers: bool,
}

/// The facts about a verb; `None` for first messages, which are no requests.
pub(super) fn facts(verb: Verb) -> Option<VerbFacts> {
    let control = Some(Class::Control);
    let (class, for_strangers) = match verb {
        Verb::Hello => return None,
        Verb::Mutate | Verb::Read | Verb::Digest | Verb::Count => (None, false),
        Verb::Hint | Verb::BatchLog | Verb::BatchDone => (None, false),
        Verb::Prepare | Verb::Accept | Verb::Learn => (None, false),
        Verb::Ping | Verb::Raft | Verb::Command | Verb::Drain | Verb::ReadIndex => (control, false),
        Verb::Join | Verb::Status => (control, true),
    };
    Some(VerbFacts { class, for_strangers })
}

/// Whether a provisional member may ask, and is asked: messages of group 0 only, over control connections.
pub(super) fn is_for_provisional(verb: Verb) -> bool {
    verb == Verb::Raft
}

/// The connection for a request of `verb` in `group`.
///
/// # Panics
/// For first messages.
pub(super) fn class_of(verb: Verb, group: WorkGroup) -> Class {
    let facts = facts(verb).expect("a first message is no request");
    facts.class.unwrap_or(match group {
        WorkGroup::Statement | WorkGroup::Scan | WorkGroup::Control => Class::Statement,
        WorkGroup::Streaming | WorkGroup::Repair | WorkGroup::Background => Class::Bulk,
    })
}

/// The scheduling group in which a request of a connection is served: only control connections reach the
/// group of the control plane.
pub(super) fn group_of(group: WorkGroup, class: Class) -> Group {
    match (class, group) {
        (Class::Control, _) => Group::CONTROL,
        (_, WorkGroup::Statement | WorkGroup::Control) => Group::STATEMENT,
        (_, WorkGroup::Scan) => Group::SCAN,
        (_, WorkGroup::Streaming) => Group::STREAMING,
        (_, WorkGroup::Repair) => Group::REPAIR,
        (_, WorkGroup::Background) => Group::BACKGROUND,
    }
}

/// The group that moves the bytes of a class of connections.
pub(super) fn carrier(class: Class) -> Group {
    match class {
        Class::Control => Group::CONTROL,
        Class::Statement => Group::STATEMENT,
        Class::Bulk => Group::STREAMING,
    }
}

/// Codes of verbs are below this.
const CODES_MAX: usize = 32;

const _: () = {
    let mut at = 0;
    while at < Verb::ALL.len() {
        assert!((Verb::ALL[at] as usize) < CODES_MAX, "a verb has no place among the handlers");
        at += 1;
    }
};

/// The handlers of this shard, by the codes of their verbs.
#[derive(Default)]
pub(super) struct Registry(RefCell<[Option<Handler>; CODES_MAX]>);

impl Registry {
    /// Has `handler` serve a verb from now on.
    ///
    /// # Panics
    /// For first messages, and for a verb that has a handler.
    pub(super) fn register<F, Fut>(&self, verb: Verb, handler: F)
    where
        F: Fn(Request) -> Fut + 'static,
        Fut: Future<Output = Answer> + 'static,
    {
        assert!(facts(verb).is_some(), "{verb:?} is no request");
        let handler: Handler = Rc::new(move |request| Box::pin(handler(request)));
        let before = self.0.borrow_mut()[verb as usize].replace(handler);
        assert!(before.is_none(), "{verb:?} has a handler already");
    }

    pub(super) fn handler(&self, verb: Verb) -> Option<Handler> {
        self.0.borrow()[verb as usize].clone()
    }

    /// Handlers hold what they serve, which may hold the network: a network that ends lets go of them.
    pub(super) fn clear(&self) {
        let handlers = self.0.take();
        drop(handlers);
    }
}
