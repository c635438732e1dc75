package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/console"
	"github.com/waggle-crawl/waggle/server/internal/peers"
)

// ownCalls makes calls from within this process, for the one who asks in their context, through the chain as all others.
type ownCalls struct{ chain *chain }

// Invoke makes a unary call.
func (o ownCalls) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	of := o.chain.methods[method]
	if of == nil || of.unary == nil {
		return fmt.Errorf("%s is no unary method of this server", method)
	}
	answer, err := o.chain.call(ctx, method, of.service, of.unary, func(e *envelope) error {
		data, err := proto.Marshal(args.(proto.Message)) //nolint:forcetypeassert // as all requests are
		e.put(data, nil)
		return err
	})
	if err != nil {
		return err
	}
	to := reply.(proto.Message) //nolint:forcetypeassert // as all answers are
	if passed, ok := answer.(*encoded); ok {
		return proto.Unmarshal(passed.data, to)
	}
	proto.Merge(to, answer.(proto.Message)) //nolint:forcetypeassert // likewise
	return nil
}

// NewStream refuses: nobody here needs one.
func (o ownCalls) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, fmt.Errorf("no streams are made from within")
}

// newConsole makes the pages of the console.
func (s *Server) newConsole() *console.Console {
	return console.New(console.Config{
		API: ownCalls{s.chain}, Guarded: s.cfg.PolicyFile != "", Version: s.cfg.Version, ReadSources: s.cfg.ReadSources,
		Admit: func(ctx context.Context) (identity, scope string, err error) {
			caller, err := s.guard.Admit(ctx, pb.AdminService_GetStats_FullMethodName)
			if err != nil {
				return "", "", statusOf(ctx, err)
			}
			for _, grant := range caller.Grants() {
				scope += fmt.Sprintf("%+v\n", *grant)
			}
			if caller != nil {
				identity = caller.Identity
			}
			return identity, scope, nil
		},
		Sources: func(ctx context.Context) []string {
			caller, err := s.guard.Admit(ctx, pb.SourceService_ListSources_FullMethodName)
			if err != nil {
				return nil // the call is refused, too
			}
			return caller.Sources()
		},
		May: func(ctx context.Context, method string) bool {
			_, err := s.guard.Admit(ctx, method)
			return err == nil
		},
		WithToken: func(ctx context.Context, token string) context.Context {
			sent, _ := metadata.FromIncomingContext(ctx)
			sent = sent.Copy()
			sent.Set("authorization", "Bearer "+token)
			return metadata.NewIncomingContext(ctx, sent)
		},
	})
}

// servePage serves a page of the console to those who may call the API at this port.
func (a *httpAPI) servePage(w http.ResponseWriter, r *http.Request, pages *console.Console) {
	ctx, call := peers.Begin(askedBy(r))
	defer call.End(true)
	done, err := a.begin()
	if err == nil {
		defer done()
		if err = a.admitPage(r); err == nil {
			err = a.chain.enter(ctx, r.URL.Path)
		} else {
			a.chain.trouble.Warn("refused a page", zap.String("path", cut(r.URL.Path, maxNameShown)), zap.String("host", cut(r.Host, maxNameShown)), zap.Error(err))
		}
	}
	if err != nil {
		http.Error(w, strings.TrimSpace(err.Error()), http.StatusForbidden)
		return
	}
	pages.ServeHTTP(w, r.WithContext(ctx))
}
