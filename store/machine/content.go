package machine

import (
	"bytes"
	"maps"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/internal/ms"
)

// content is what a task is about: its URL, key, kind, metadata, payload, trace, and the redirect that led to it, as the fields that
// its item has of them. They are written once, when it is submitted, and go as they are into groups, snapshots and memory;
// they are read where the task is handed out or compared. So a waiting task is one text and a record without texts.
//
// Fields that this program does not know stay in it until it is replaced.
type content string

// The numbers of the fields of a content.
const (
	contentURL      = 1
	contentKey      = 2 // if it is not the URL
	contentKind     = 3
	contentMetadata = 4 // an entry each
	contentPayload  = 5
	contentRedirect = 6
	contentTrace    = 65
)

// unpacked is a content that was read.
type unpacked struct {
	url, key, kind string
	metadata       map[string]string
	payload        []byte
	redirect       dispatch.Redirect
	traceparent    string
}

// submitted is what a submission says.
func submitted(item *dispatch.Submission) unpacked {
	return unpacked{
		url: item.URL, key: item.Key, kind: item.Kind, metadata: item.Metadata, payload: item.Payload, redirect: item.Redirect,
		traceparent: item.Traceparent,
	}
}

// imported is what a task of another store says.
func imported(t *dispatch.Task) unpacked {
	return unpacked{
		url: t.URL, key: t.Key, kind: t.Kind, metadata: t.Metadata, payload: t.Payload, redirect: t.Redirect, traceparent: t.Traceparent,
	}
}

// copyTo copies a content to a task for a caller of the store.
func (t content) copyTo(task *dispatch.Task) {
	u := t.unpack()
	task.URL, task.Key, task.Kind, task.Metadata, task.Payload, task.Redirect = u.url, u.key, u.kind, u.metadata, u.payload, u.redirect
	task.Traceparent = u.traceparent
}

// shrunk is what is kept of a settled task that may be retried.
func (t content) shrunk() unpacked {
	u := t.unpack()
	return unpacked{url: u.url, key: u.key, kind: u.kind}
}

// fields writes a content.
func (u *unpacked) fields(c *codec.Codec) {
	key := u.key
	if key == u.url {
		key = ""
	}
	codec.Text(c, contentURL, &u.url)
	codec.Text(c, contentKey, &key)
	codec.Text(c, contentKind, &u.kind)
	codec.Map(c, contentMetadata, &u.metadata)
	c.Bytes(contentPayload, &u.payload)
	if u.redirect.Hops > 0 {
		redirect := &dispatch.Redirect{Hops: u.redirect.Hops, From: u.redirect.From, Due: ms.Time(ms.Of(u.redirect.Due))}
		codec.Optional(c, contentRedirect, &redirect, redirectFields)
	}
	codec.Text(c, contentTrace, &u.traceparent)
}

// unpack reads a content. Its texts are parts of the content, and no copies.
func (t content) unpack() (u unpacked) {
	for number, field := range codec.TextFields(string(t)) {
		switch number {
		case contentURL:
			u.url = field
		case contentKey:
			u.key = field
		case contentKind:
			u.kind = field
		case contentMetadata:
			if u.metadata == nil {
				u.metadata = make(map[string]string)
			}
			key, value := entry(field)
			u.metadata[key] = value
		case contentPayload:
			u.payload = []byte(field)
		case contentRedirect:
			redirectFields(codec.Reader([]byte(field)), &u.redirect)
		case contentTrace:
			u.traceparent = field
		}
	}
	if u.key == "" {
		u.key = u.url
	}
	return u
}

// entry is an entry of the metadata.
func entry(fields string) (key, value string) {
	for number, field := range codec.TextFields(fields) {
		switch number {
		case 1:
			key = field
		case 2:
			value = field
		}
	}
	return key, value
}

// sound reports whether a content can be read.
func (t content) sound() bool { return codec.Sound(string(t)) }

// bytes is the size of the texts and the payload.
func (t content) bytes() (n int) {
	url, key := 0, 0
	for number, field := range codec.TextFields(string(t)) {
		switch number {
		case contentURL:
			url = len(field)
		case contentKey:
			key = len(field)
		case contentKind, contentPayload, contentTrace:
			n += len(field)
		case contentMetadata:
			key, value := entry(field)
			n += len(key) + len(value)
		case contentRedirect:
			var redirect dispatch.Redirect
			redirectFields(codec.Reader([]byte(field)), &redirect)
			n += len(redirect.From)
		}
	}
	if key == 0 {
		key = url
	}
	return n + url + key
}

// same reports whether an item says what the content says, whatever trace it came by.
func (u *unpacked) same(item *dispatch.Submission) bool {
	return u.kind == item.Kind && u.url == item.URL && u.redirect == item.Redirect &&
		maps.Equal(u.metadata, item.Metadata) && bytes.Equal(u.payload, item.Payload)
}
