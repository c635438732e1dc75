package console

import (
	"encoding/base64"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/jellydator/ttlcache/v3"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/status"
)

// sessionCookie has the token that its reader signed in with, so that a session is good at each dispatcher, and ends with its token.
const sessionCookie = "waggle-session"

// maxToken is the longest token that a cookie has room for, in bytes: browsers drop larger cookies than 4096 bytes (RFC 6265, section 6.1).
const maxToken = 2900

// Sign-ins that fail, by address: a guess costs the one who guesses time.
const (
	failedSignIns    = 10
	failedEach       = 6 * time.Second
	signInsForgotten = 10 * time.Minute
	maxSignInPeers   = 10_000
)

// attempts limit sign-ins, by those that failed.
type attempts struct {
	failed *ttlcache.Cache[string, *rate.Limiter]
}

func newAttempts() *attempts {
	return &attempts{ttlcache.New(ttlcache.WithTTL[string, *rate.Limiter](signInsForgotten), ttlcache.WithCapacity[string, *rate.Limiter](maxSignInPeers))}
}

// of is the limit of who asks.
func (s *attempts) of(r *http.Request) *rate.Limiter {
	address, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		address = r.RemoteAddr
	}
	found, _ := s.failed.GetOrSetFunc(address, func() *rate.Limiter { return rate.NewLimiter(rate.Every(failedEach), failedSignIns) })
	return found.Value()
}

// tokenOf is the token of the session; empty: there is none.
func tokenOf(r *http.Request) string {
	cookie, err := r.Cookie(sessionCookie)
	if err != nil {
		return ""
	}
	token, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil {
		return ""
	}
	return string(token)
}

// signInView is the page at which to sign in.
type signInView struct {
	To    string // the page to go to then
	Error string
}

// pageTo is a page to go to, if it is one of the console: relative.
func pageTo(to string) string {
	if to == "" || strings.ContainsAny(to, ":\\\r\n") || strings.HasPrefix(to, "/") {
		return "."
	}
	return to
}

// toSignIn sends the browser to the page at which to sign in.
func (c *Console) toSignIn(w http.ResponseWriter, r *http.Request) {
	to := strings.TrimPrefix(r.URL.Path, "/")
	if r.URL.RawQuery != "" {
		to += "?" + r.URL.RawQuery
	}
	redirect(w, "signin?to="+escapeQuery(to))
}

func (c *Console) signInPage(w http.ResponseWriter, r *http.Request) {
	v := c.visit(r)
	v.write(w, http.StatusOK, &view{page: "signin", title: "Sign in", data: &signInView{To: pageTo(v.query("to"))}})
}

func (c *Console) signIn(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	token, to := strings.TrimSpace(r.PostFormValue("token")), pageTo(r.PostFormValue("to"))
	v := c.visit(r)
	again := func(code int, text string) {
		v.write(w, code, &view{page: "signin", title: "Sign in", data: &signInView{To: to, Error: v.text.say(text)}})
	}
	limit := c.attempts.of(r)
	switch {
	case limit.Tokens() < 1:
		w.Header().Set("Retry-After", "6")
		again(http.StatusTooManyRequests, "Too many sign-ins have failed from this address: try again in a while.")
		return
	case token == "":
		again(http.StatusBadRequest, "The token is missing.")
		return
	case len(token) > maxToken:
		again(http.StatusBadRequest, "The token is too long for a cookie: sign in with a client certificate.")
		return
	}
	if _, _, err := c.cfg.Admit(c.cfg.WithToken(r.Context(), token)); err != nil {
		limit.Allow()
		again(httpStatus(status.Code(err)), "This token is not accepted.")
		return
	}
	setCookie(w, r, &http.Cookie{Name: sessionCookie, Value: base64.RawURLEncoding.EncodeToString([]byte(token))})
	redirect(w, to)
}

func (c *Console) signOut(w http.ResponseWriter, r *http.Request) {
	setCookie(w, r, &http.Cookie{Name: sessionCookie, MaxAge: -1})
	redirect(w, "signin")
}

// setCookie sets a cookie of the console. It has no path, so that the browser keeps it below that of the page (RFC 6265, section 5.1.4):
// behind a proxy other programs of the host do not get the token. A proxy that speaks TLS for the console says so.
func setCookie(w http.ResponseWriter, r *http.Request, cookie *http.Cookie) {
	cookie.HttpOnly, cookie.SameSite = true, http.SameSiteLaxMode
	cookie.Secure = r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
	http.SetCookie(w, cookie)
}
