package collectorkit

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// jsonServer answers calls as JSON over HTTP, by the Connect protocol, for clients that have no HTTP/2. It has no streams.
type jsonServer struct{ service service }

// ServeHTTP answers one call.
func (s jsonServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	if ms, err := strconv.Atoi(r.Header.Get("Connect-Timeout-Ms")); err == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(ms)*time.Millisecond)
		defer cancel()
	}
	header := metadata.MD{}
	for name, values := range r.Header {
		header.Append(name, values...)
	}
	ctx = metadata.NewIncomingContext(ctx, header)
	reply, err := s.call(ctx, r)
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		writeError(w, err)
		return
	}
	text, err := protojson.Marshal(reply)
	if err != nil {
		writeError(w, err)
		return
	}
	later := `{"ofALaterVersion":"text"`
	if string(text) != "{}" {
		later += ","
	}
	_, _ = io.WriteString(w, later+string(text[1:])) // the client may have gone
}

func (s jsonServer) call(ctx context.Context, r *http.Request) (proto.Message, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, 4<<20))
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		return nil, status.Error(codes.ResourceExhausted, err.Error())
	}
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	switch r.URL.Path {
	case wagglev1.DispatchService_FetchTask_FullMethodName:
		return unary(ctx, body, s.service.FetchTask)
	case wagglev1.DispatchService_RenewLease_FullMethodName:
		return unary(ctx, body, s.service.RenewLease)
	case wagglev1.DispatchService_ReportTask_FullMethodName:
		return unary(ctx, body, s.service.ReportTask)
	case wagglev1.DispatchService_SubmitDiscovered_FullMethodName:
		return unary(ctx, body, s.service.SubmitDiscovered)
	}
	return nil, status.Error(codes.Unimplemented, r.URL.Path+" is no call of the kit")
}

func unary[Request, Reply any, R interface {
	*Request
	proto.Message
}, P interface {
	*Reply
	proto.Message
}](ctx context.Context, body []byte, call func(context.Context, *Request) (*Reply, error)) (proto.Message, error) {
	request := new(Request)
	if err := protojson.Unmarshal(bytes.TrimSpace(body), R(request)); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	reply, err := call(ctx, request)
	return P(reply), err
}

// connectCodes are the names and HTTP statuses of codes by the Connect protocol.
var connectCodes = map[codes.Code]struct {
	name   string
	status int
}{
	codes.Canceled: {"canceled", 499}, codes.Unknown: {"unknown", 500}, codes.InvalidArgument: {"invalid_argument", 400},
	codes.DeadlineExceeded: {"deadline_exceeded", 504}, codes.NotFound: {"not_found", 404}, codes.PermissionDenied: {"permission_denied", 403},
	codes.ResourceExhausted: {"resource_exhausted", 429}, codes.FailedPrecondition: {"failed_precondition", 400}, codes.Unimplemented: {"unimplemented", 501},
	codes.Internal: {"internal", 500}, codes.Unavailable: {"unavailable", 503}, codes.Unauthenticated: {"unauthenticated", 401},
}

func writeError(w http.ResponseWriter, err error) {
	type detail struct {
		Type  string `json:"type"`
		Value string `json:"value"`
	}
	answer := struct {
		Code    string   `json:"code"`
		Message string   `json:"message"`
		Details []detail `json:"details,omitempty"`
	}{Code: "unknown", Message: status.Convert(err).Message()}
	httpStatus := http.StatusInternalServerError
	if known, isKnown := connectCodes[status.Code(err)]; isKnown {
		answer.Code, httpStatus = known.name, known.status
	}
	for _, packed := range status.Convert(err).Proto().GetDetails() {
		name := packed.MessageName()
		answer.Details = append(answer.Details, detail{Type: string(name), Value: base64.RawStdEncoding.EncodeToString(packed.GetValue())})
	}
	w.WriteHeader(httpStatus)
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		return // the client has gone
	}
}
