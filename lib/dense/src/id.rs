//! Typed ids: newtypes over `u32`, so that a node cannot be taken for a queue.

use core::fmt::Debug;
use core::hash::Hash;

/// A small whole number that names one thing of one kind. Implemented by [`define_id!`](crate::define_id).
///
/// `from_index(i).index() == i`, and ids compare as their indices do.
pub trait Id: Copy + Eq + Ord + Hash + Debug + Send + Sync + 'static {
    /// The id at this place.
    ///
    /// # Panics
    ///
    /// When the index does not fit 32 bits.
    fn from_index(index: usize) -> Self;

    /// The place of this id.
    fn index(self) -> usize;
}

/// Defines id types.
///
/// ```
/// use dense::{Id, define_id};
///
/// define_id! {
///     /// A node of the cluster.
///     pub struct NodeId;
///     /// A queue of gangs.
///     pub(crate) struct QueueId;
/// }
///
/// let node = NodeId::new(7);
/// assert_eq!(node.index(), 7);
/// assert_eq!(NodeId::from_index(7), node);
/// assert_eq!(format!("{node:?} {node}"), "NodeId(7) 7");
/// ```
#[macro_export]
macro_rules! define_id {
    ($($(#[$meta:meta])* $vis:vis struct $name:ident;)+) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        $vis struct $name(u32);

        impl $name {
            /// The id with this number.
            #[inline]
            #[must_use]
            #[allow(dead_code, reason = "a private id type may be made by its collection alone")]
            $vis const fn new(number: u32) -> Self {
                $name(number)
            }

            /// The number of this id.
            #[inline]
            #[must_use]
            #[allow(dead_code, reason = "a private id type may be used as an index alone")]
            $vis const fn number(self) -> u32 {
                self.0
            }
        }

        impl $crate::Id for $name {
            #[inline]
            fn from_index(index: usize) -> Self {
                $name(u32::try_from(index).expect("an id fits 32 bits"))
            }

            #[inline]
            fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl ::core::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::core::write!(f, "{}({})", ::core::stringify!($name), self.0)
            }
        }

        impl ::core::fmt::Display for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::core::fmt::Display::fmt(&self.0, f)
            }
        }
    )+};
    ($(#[$meta:meta])* $vis:vis struct $name:ident) => {
        $crate::define_id! { $(#[$meta])* $vis struct $name; }
    };
}
