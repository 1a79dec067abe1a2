//! Netlink messages as the kernel sends them, and its replies among them.

use super::attr::Reader;
use super::uapi::*;

/// One message.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// `nlmsg_type`.
    pub kind: u16,
    /// `nlmsg_flags`.
    pub flags: u16,
    /// The number of the message that it answers.
    pub seq: u32,
    /// The port of the socket whose doing it tells of.
    pub port: u32,
    /// All of it, with the header.
    pub bytes: &'a [u8],
}

/// Walks the messages in what one receive gave. It ends at the first one that claims to reach beyond the bytes.
pub fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = u32_at(bytes, 0)? as usize;
        let message = bytes.get(..length).filter(|m| m.len() >= NETLINK_HEADER)?;
        bytes = bytes.get((length + 3) & !3..).unwrap_or_default();
        Some(Message {
            kind: u16_at(message, 4)?,
            flags: u16_at(message, 6)?,
            seq: u32_at(message, 8)?,
            port: u32_at(message, 12)?,
            bytes: message,
        })
    })
}

/// The attributes of an nf_tables message.
pub fn attrs(message: &[u8]) -> Reader<'_> {
    Reader::new(message.get(MESSAGE_HEADER..).unwrap_or_default())
}

/// The `nfgen_family` of an nf_tables message.
pub fn family(message: &[u8]) -> Option<u8> {
    message.get(NETLINK_HEADER).copied()
}

/// The kernel's answer to one message: an acknowledgement, or an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The number of the message that it answers.
    pub seq: u32,
    /// 0 acknowledges.
    pub errno: i32,
    /// Where in the message the attribute starts that was refused.
    pub offset: Option<usize>,
    /// The kernel's words for it.
    pub text: Option<String>,
}

/// Reads `NLMSG_ERROR`, also when it carries no error; nothing for any other message.
pub fn reply(message: &Message) -> Option<Reply> {
    if message.kind != NLMSG_ERROR {
        return None;
    }
    let errno = u32_at(message.bytes, NETLINK_HEADER)?.cast_signed().saturating_neg();
    let mut reply = Reply { seq: message.seq, errno, offset: None, text: None };
    if message.flags & NLM_F_ACK_TLVS != 0 {
        let repeated = match message.flags & NLM_F_CAPPED {
            0 => u32_at(message.bytes, NETLINK_HEADER + 4)? as usize,
            _ => NETLINK_HEADER,
        };
        let start = NETLINK_HEADER + 4 + (repeated.checked_add(3)? & !3);
        for attr in Reader::new(message.bytes.get(start..).unwrap_or_default()) {
            match attr.kind {
                NLMSGERR_ATTR_MSG => reply.text = Some(attr.text().into_owned()),
                NLMSGERR_ATTR_OFFS => reply.offset = u32_at(attr.value, 0).map(|offset| offset as usize),
                _ => {}
            }
        }
    }
    Some(reply)
}

/// The error number (positive) that ends a dump, if it failed.
pub fn done_errno(message: &Message) -> Option<i32> {
    let code = u32_at(message.bytes, NETLINK_HEADER)?.cast_signed();
    (code < 0).then(|| code.saturating_neg())
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attr::Writer;

    fn error(flags: u16, errno: i32, repeated: &[u8], attrs: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; NETLINK_HEADER];
        bytes[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes[8..12].copy_from_slice(&7u32.to_ne_bytes());
        bytes.extend_from_slice(&(-errno).to_ne_bytes());
        let mut header = [0; NETLINK_HEADER];
        header[..4].copy_from_slice(&((NETLINK_HEADER + repeated.len()) as u32).to_ne_bytes());
        bytes.extend(header.iter().chain(repeated).chain(attrs));
        let length = bytes.len() as u32;
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        bytes
    }

    fn details() -> Vec<u8> {
        let mut writer = Writer::default();
        writer.text(NLMSGERR_ATTR_MSG, "no such thing");
        writer.put(NLMSGERR_ATTR_OFFS, &44u32.to_ne_bytes());
        writer.bytes
    }

    #[test]
    fn replies_are_read_with_and_without_the_message_repeated() {
        let expected = Reply { seq: 7, errno: 2, offset: Some(44), text: Some("no such thing".into()) };
        for bytes in
            [error(NLM_F_ACK_TLVS | NLM_F_CAPPED, 2, &[], &details()), error(NLM_F_ACK_TLVS, 2, &[1; 8], &details())]
        {
            assert_eq!(reply(&messages(&bytes).next().unwrap()), Some(expected.clone()));
        }
        let ack = error(NLM_F_CAPPED, 0, &[], &[]);
        assert_eq!(reply(&messages(&ack).next().unwrap()), Some(Reply { seq: 7, errno: 0, offset: None, text: None }));
    }

    #[test]
    fn messages_are_walked_and_broken_ones_end_the_walk() {
        let mut two = error(0, 1, &[], &[]);
        two.extend(error(0, 2, &[], &[]));
        let errnos: Vec<i32> = messages(&two).filter_map(|m| reply(&m)).map(|r| r.errno).collect();
        assert_eq!(errnos, [1, 2]);
        two.pop();
        assert_eq!(messages(&two).count(), 1);
        assert_eq!(messages(&[0; 40]).count(), 0);
    }
}
