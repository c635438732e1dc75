package server

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// tokenSum is how many bytes of checksum a page token begins with.
const tokenSum = 8

// maxTokenLength of a page token; longer ones are not read.
const maxTokenLength = 8 << 10

// pages makes and reads the page tokens of one list: a cursor behind a checksum
// over the cursor, the method and the conditions of the list. So a token that
// was changed, or belongs to another list, is refused where it would else give
// a page of something else. It keeps no secret: who may list, may list.
type pages struct{ binding []byte }

// pagesOf binds tokens to a method and the conditions of the request, but not
// to the size of the page or the token itself.
func pagesOf(method string, conditions proto.Message) (pages, error) {
	bound := proto.Clone(conditions)
	fields := bound.ProtoReflect().Descriptor().Fields()
	for _, name := range []string{"page_size", "page_token"} {
		if field := fields.ByTextName(name); field != nil {
			bound.ProtoReflect().Clear(field)
		}
	}
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(bound)
	if err != nil {
		return pages{}, fmt.Errorf("bind page token: %w", err)
	}
	return pages{binding: append([]byte(method+"\x00"), encoded...)}, nil
}

// token is the page token for what follows cursor; empty at the end.
func (p pages) token(cursor string) string {
	if cursor == "" {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(append(p.sum(cursor), cursor...))
}

// cursor is what token stands for; empty for the first page. The error is
// [dispatch.ErrPageToken].
func (p pages) cursor(token string) (string, error) {
	if token == "" {
		return "", nil
	}
	if len(token) > maxTokenLength {
		return "", wrongToken(token, fmt.Sprintf("is %d bytes long; the limit is %d", len(token), maxTokenLength))
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(raw) <= tokenSum {
		return "", wrongToken(token, tokenOrigin)
	}
	cursor := string(raw[tokenSum:])
	if !slices.Equal(raw[:tokenSum], p.sum(cursor)) {
		return "", wrongToken(token, tokenOrigin)
	}
	return cursor, nil
}

// tokenOrigin is where a page token has to come from.
const tokenOrigin = "must be next_page_token of the page before, all other fields the same"

// wrongToken is [dispatch.ErrPageToken] as a field that is outside its limit.
func wrongToken(token, limit string) error {
	return fmt.Errorf("%w: %w", dispatch.ErrPageToken, &dispatch.FieldError{Field: "page_token", Value: token, Limit: limit})
}

func (p pages) sum(cursor string) []byte {
	h := sha256.New()
	h.Write(p.binding)
	h.Write([]byte{0})
	h.Write([]byte(cursor))
	return h.Sum(nil)[:tokenSum:tokenSum]
}

// fitting lists a page of at most limit items, and fewer if so many would not fit
// into a reply, of which clients take 4 MiB by default: then it lists again with as
// many as are likely to. Pages of large records are short already.
func fitting[T proto.Message](limit int, list func(limit int) ([]T, string, error)) ([]T, string, error) {
	for {
		items, next, err := list(limit)
		if err != nil {
			return nil, "", err
		}
		size := 0
		for _, item := range items {
			size += proto.Size(item)
		}
		if size <= bounds.MaxPageBytes || limit == 1 {
			return items, next, nil
		}
		// Always fewer, and so an end: halving at least.
		limit = max(1, min(limit/2, len(items)*bounds.MaxPageBytes/size))
	}
}
