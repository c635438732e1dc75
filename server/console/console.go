package console

import (
	"context"
	"embed"
	"encoding/base64"
	"hash/fnv"
	"io/fs"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// Config of a [Console]. All fields are required, but those that have a meaning when they are nil.
type Config struct {
	// API makes calls for the one who asks in their context.
	API grpc.ClientConnInterface
	// Guarded: who asks needs a credential.
	Guarded bool
	// Admit returns who asks: a name for people, empty if nobody has to say, and a text that is the same for all who may see the same. The
	// error is a status.
	Admit func(ctx context.Context) (identity, scope string, err error)
	// Sources are the prefixes of the ids of all sources that who asks may see; nil: all.
	Sources func(ctx context.Context) []string
	// May reports whether who asks may call a method.
	May func(ctx context.Context, method string) bool
	// WithToken is ctx with a bearer token in place of what it had.
	WithToken func(ctx context.Context, token string) context.Context
	// ReadSources reads the files that are uploaded; nil: there is no upload.
	ReadSources SourceReader
	// Version of this build.
	Version string
}

// Console serves the pages.
type Console struct {
	cfg      Config
	admin    pb.AdminServiceClient
	sources  pb.SourceServiceClient
	queues   pb.QueueServiceClient
	tasks    pb.TaskServiceClient
	holds    pb.HoldServiceClient
	text     map[string]*texts // by language
	actions  map[string]action
	looks    *looks
	attempts *attempts
	closing  chan struct{}
	mux      *http.ServeMux
}

// New makes a console.
func New(cfg Config) *Console {
	c := &Console{
		cfg: cfg, admin: pb.NewAdminServiceClient(cfg.API), sources: pb.NewSourceServiceClient(cfg.API), queues: pb.NewQueueServiceClient(cfg.API),
		tasks: pb.NewTaskServiceClient(cfg.API), holds: pb.NewHoldServiceClient(cfg.API),
		text: allTexts(), attempts: newAttempts(), closing: make(chan struct{}), mux: http.NewServeMux(),
	}
	c.looks = newLooks(c)
	c.actions = actions(cfg.ReadSources != nil)
	c.mux.Handle("GET /assets/{version}/{file}", assets())
	for path, show := range map[string]func(*visit) (any, error){
		"/{$}": c.overview, "/sources": c.sourceList, "/source": c.source, "/queues": c.queueList, "/queue": c.queue, "/tasks": c.taskList, "/task": c.task,
		"/collectors": c.collectorList, "/holds": c.holdList, "/rules": c.ruleList, "/audit": c.auditList,
	} {
		c.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) { c.page(w, r, show) }) //nolint:contextcheck // it is the request's
	}
	changes := map[string]func(*visit) (any, error){"/change": c.change, "/add": c.add}
	if cfg.ReadSources != nil {
		changes[importPage] = c.importFile
	}
	for path, show := range changes {
		c.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) { c.page(w, r, show) })  //nolint:contextcheck // it is the request's
		c.mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) { c.page(w, r, show) }) //nolint:contextcheck // likewise
	}
	c.mux.HandleFunc("GET /signin", c.signInPage)
	c.mux.HandleFunc("POST /signin", c.signIn)
	c.mux.HandleFunc("POST /signout", c.signOut)
	c.mux.HandleFunc("POST /language", c.setLanguage)
	c.mux.HandleFunc("GET /events", c.events)
	return c
}

// Close ends the event streams.
func (c *Console) Close() { close(c.closing) }

// ServeHTTP serves a page.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.mux.ServeHTTP(w, r) }

//go:embed assets
var embedded embed.FS

// assetVersion is of the files of this build, so that browsers may keep them for ever.
var assetVersion = func() string {
	sum := fnv.New64a()
	err := fs.WalkDir(embedded, "assets", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := embedded.ReadFile(path)
		_, _ = sum.Write(data) // it never fails
		return err
	})
	if err != nil {
		panic(err) // of an embedded file
	}
	return strconv.FormatUint(sum.Sum64(), 36)
}()

func assets() http.Handler {
	files, err := fs.Sub(embedded, "assets")
	if err != nil {
		panic(err) // of an embedded folder
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("version") == assetVersion {
			w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		http.ServeFileFS(w, r, files, r.PathValue("file"))
	})
}

// visit is a request for a page.
type visit struct {
	*http.Request
	c        *Console
	text     *texts
	identity string
	scope    string // the same for all who may see the same
	control  *http.ResponseController
	now      time.Time
}

// page admits who asks, and writes a page or why there is none.
func (c *Console) page(w http.ResponseWriter, r *http.Request, show func(*visit) (any, error)) {
	v := c.visit(r)
	v.control = http.NewResponseController(w)
	var data any
	var err error
	if v.identity, v.scope, err = c.cfg.Admit(v.Context()); err == nil {
		data, err = show(v)
	}
	switch code := status.Code(err); {
	case err == nil:
		if done, ok := data.(*made); ok {
			setCookie(w, r, &http.Cookie{Name: doneCookie, Value: base64.RawURLEncoding.EncodeToString([]byte(cut(done.text, maxDone))), MaxAge: 60})
			redirect(w, done.to)
			return
		}
		v.write(w, http.StatusOK, data)
	case code == codes.Unauthenticated && c.cfg.Guarded:
		c.toSignIn(w, r)
	default:
		v.write(w, httpStatus(code), &failure{Text: status.Convert(err).Message()})
	}
}

func httpStatus(code codes.Code) int {
	switch code {
	case codes.NotFound:
		return http.StatusNotFound
	case codes.InvalidArgument, codes.OutOfRange, codes.FailedPrecondition, codes.AlreadyExists, codes.Aborted:
		return http.StatusBadRequest
	case codes.Unauthenticated:
		return http.StatusUnauthorized
	case codes.PermissionDenied:
		return http.StatusForbidden
	case codes.ResourceExhausted:
		return http.StatusTooManyRequests
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

// failure is the page of what went wrong.
type failure struct{ Text string }

func (c *Console) visit(r *http.Request) *visit {
	ctx := r.Context()
	if token := tokenOf(r); token != "" {
		ctx = c.cfg.WithToken(ctx, token)
	}
	return &visit{Request: r.WithContext(ctx), c: c, text: c.textOf(r), now: time.Now()}
}

// query is a parameter of the page's address.
func (v *visit) query(name string) string { return strings.TrimSpace(v.URL.Query().Get(name)) }

// redirect sends the browser to a page of the console. [http.Redirect] would make the address absolute, and a proxy may have another one.
func redirect(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}
