//! Reading the arguments of a native.

use crate::error::{Kind, Stop};
use crate::host::Args;
use crate::value::Value;

impl<'a> Args<'a> {
    /// Checks the number of positional arguments and that there are no keyword arguments. For
    /// methods the object is not counted, here and in the message.
    ///
    /// # Errors
    /// A message that names the function and both numbers.
    #[inline]
    pub fn only(&self, name: &str, method: bool, least: usize, most: usize) -> Result<(), Stop> {
        let got = self.pos.len() - usize::from(method);
        if self.names.is_empty() && got >= least && got <= most {
            return Ok(());
        }
        Err(self.others(name, got, least, most))
    }

    /// What [`only`](Self::only) says.
    #[cold]
    fn others(&self, name: &str, got: usize, least: usize, most: usize) -> Stop {
        if let Some(unknown) = self.names.first() {
            return Stop::fail(Kind::Arguments, format!("{name}() got an unexpected keyword argument '{unknown}'"));
        }
        let wanted = if least == most {
            format!("{least} argument{}", if least == 1 { "" } else { "s" })
        } else if most == usize::MAX {
            format!("at least {least} arguments")
        } else {
            format!("{least} to {most} arguments")
        };
        Stop::fail(Kind::Arguments, format!("{name}() takes {wanted}, {got} given"))
    }

    /// A keyword argument.
    #[must_use]
    pub fn keyword(&self, name: &str) -> Option<&'a Value> {
        self.names.iter().position(|given| given.as_str() == name).and_then(|at| self.named.get(at))
    }

    /// Binds arguments to parameters, by position or name: `params` are their names, the first
    /// `required` of them must be given. For methods leave the object out of `params`.
    ///
    /// # Errors
    /// A message that names the function and what is wrong.
    pub fn bind<const N: usize>(
        &self,
        name: &str,
        method: bool,
        params: [&str; N],
        required: usize,
    ) -> Result<[Option<&'a Value>; N], Stop> {
        let pos = &self.pos[usize::from(method)..];
        if pos.len() > N {
            return Err(Stop::fail(
                Kind::Arguments,
                format!("{name}() takes at most {N} argument{}, {} given", if N == 1 { "" } else { "s" }, pos.len()),
            ));
        }
        let mut bound = [None; N];
        for (pending, value) in bound.iter_mut().zip(pos) {
            *pending = Some(value);
        }
        for (given, value) in self.names.iter().zip(self.named) {
            match params.iter().position(|param| *param == given.as_str()) {
                Some(at) if bound[at].is_none() => bound[at] = Some(value),
                Some(_) => {
                    return Err(Stop::fail(
                        Kind::Arguments,
                        format!("{name}() got two values for the argument '{given}'"),
                    ));
                }
                None => {
                    return Err(Stop::fail(
                        Kind::Arguments,
                        format!("{name}() got an unexpected keyword argument '{given}'"),
                    ));
                }
            }
        }
        if let Some(missing) = (0..required).find(|at| bound[*at].is_none()) {
            return Err(Stop::fail(Kind::Arguments, format!("{name}() needs the argument '{}'", params[missing])));
        }
        Ok(bound)
    }
}
