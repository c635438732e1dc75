package wire

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

const (
	defaultPageSize = 50
	maxPageSize     = 1000

	tokenSum       = 8       // bytes of checksum that a page token begins with
	maxTokenLength = 8 << 10 // longer page tokens are not read
)

// listRequest is what every request for a list has.
type listRequest interface {
	proto.Message
	GetPageSize() int32
	GetPageToken() string
}

// List answers a list request with a page of messages, and the token of the next page. It asks for fewer items than the
// request allows if so many would not fit into a reply, of which clients take 4 MiB by default. Pages of large records
// are short already.
func List[From any, To proto.Message](req listRequest, list func(after string, limit int) ([]From, string, error), convert func(From) To) ([]To, string, error) {
	var c checks
	if size := req.GetPageSize(); size < 0 || size > maxPageSize {
		c.fail("page_size", size, "must be 0 (for %d) to %d", defaultPageSize, maxPageSize)
		return nil, "", c.err()
	}
	pages, err := pagesOf(req, req)
	if err != nil {
		return nil, "", err
	}
	after, err := pages.cursor(req.GetPageToken())
	if err != nil {
		return nil, "", err
	}
	limit := cmp.Or(int(req.GetPageSize()), defaultPageSize)
	for {
		found, next, err := list(after, limit)
		if err != nil {
			return nil, "", err
		}
		items, size := each(found, convert), 0
		for _, item := range items {
			size += proto.Size(item)
		}
		if size <= bounds.MaxPageBytes || limit == 1 {
			return items, pages.token(next), nil
		}
		// Always fewer, and so an end: halving at least.
		limit = max(1, min(limit/2, len(items)*bounds.MaxPageBytes/size))
	}
}

// pages makes and reads the page tokens of one list: a cursor behind a checksum over the cursor, the method and the
// conditions of the list. So a token that was changed, or belongs to another list, is refused where it would else give
// a page of something else. It keeps no secret: who may list, may list.
type pages struct{ binding []byte }

// pagesOf binds tokens to the method of a request and to conditions, but not to the size of the page or the token.
func pagesOf(req, conditions proto.Message) (pages, error) {
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
	return pages{binding: append([]byte(req.ProtoReflect().Descriptor().Name()+"\x00"), encoded...)}, nil
}

// token is the page token for what follows cursor; empty at the end.
func (p pages) token(cursor string) string {
	if cursor == "" {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(append(p.sum(cursor), cursor...))
}

// cursor is what token stands for; empty for the first page. The error is [dispatch.ErrPageToken].
func (p pages) cursor(token string) (string, error) {
	if token == "" {
		return "", nil
	}
	if len(token) > maxTokenLength {
		return "", wrongToken(token, fmt.Sprintf("is %d bytes long; the limit is %d", len(token), maxTokenLength))
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(raw) <= tokenSum || !slices.Equal(raw[:tokenSum], p.sum(string(raw[tokenSum:]))) {
		return "", wrongToken(token, "must be next_page_token of the page before, all other fields the same")
	}
	return string(raw[tokenSum:]), nil
}

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

// each converts the elements of a list.
func each[From, To any](in []From, convert func(From) To) []To {
	out := make([]To, len(in))
	for i := range in {
		out[i] = convert(in[i])
	}
	return out
}
