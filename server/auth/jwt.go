package auth

import (
	"context"
	"crypto"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/jellydator/ttlcache/v3"
	"go.uber.org/zap"
)

const (
	// refreshEach is the time between two reads of an issuer's keys from its URL. Keys that it withdraws count until then.
	refreshEach = time.Minute
	// refreshSoon is the least time between two of them, if a token has an unknown key.
	refreshSoon = time.Second
	// fetchTimeout bounds one read, and maxKeys its answer in bytes.
	fetchTimeout = 5 * time.Second
	maxKeys      = 1 << 20
	maxRedirects = 5
	// leeway is how far the clocks of an issuer and of this machine may differ.
	leeway = 10 * time.Second
	// maxVerified bounds the tokens that are known to be valid.
	maxVerified = 100_000
	// maxSubject bounds the subject of a token, in bytes.
	maxSubject = 256
)

// algorithms are the signatures that count: those with a public key.
func algorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA}
}

// issuer has the keys of an [Issuer].
type issuer struct {
	Issuer

	log  *zap.Logger
	keys atomic.Pointer[keySet]
	file *files // nil: the keys come from a URL

	// What follows is of the goroutine that follows files.
	read    time.Time // when a read from the URL began
	reading chan *jose.JSONWebKeySet
	wanted  atomic.Bool // a token has an unknown key
}

// keySet are keys, with the tokens that were found valid by them.
type keySet struct {
	keys     jose.JSONWebKeySet
	verified *ttlcache.Cache[[sha256.Size]byte, verified]
}

// verified is whose a token is.
type verified struct {
	identity string
	expires  time.Time
}

// newIssuer takes the keys over from an issuer with the same ones, if there is one. Files are named from the policy's folder.
func newIssuer(of *Issuer, old *issuer, policyFile string, log *zap.Logger) (*issuer, error) {
	if old != nil && old.Issuer == *of {
		return old, nil
	}
	i := &issuer{Issuer: *of, log: log}
	if of.KeysFile == "" {
		var keys jose.JSONWebKeySet
		if old != nil {
			keys, i.read = old.keys.Load().keys, old.read
		}
		i.setKeys(keys)
		return i, nil
	}
	path := of.KeysFile
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(policyFile), path)
	}
	i.file = &files{paths: []string{path}, what: "the keys of " + of.Issuer, log: log, read: func(contents [][]byte) error {
		keys, err := parseKeys(contents[0])
		if err == nil {
			i.setKeys(keys)
		}
		return err
	}}
	if err := i.file.load(); err != nil {
		return nil, fmt.Errorf("%w: jwt.keys_file: %w", ErrInvalid, err)
	}
	return i, nil
}

// setKeys forgets the tokens that were valid by other keys.
func (i *issuer) setKeys(keys jose.JSONWebKeySet) {
	i.keys.Store(&keySet{keys, ttlcache.New(
		ttlcache.WithCapacity[[sha256.Size]byte, verified](maxVerified), ttlcache.WithDisableTouchOnHit[[sha256.Size]byte, verified]())})
}

// parseKeys reads a JSON Web Key Set. Symmetric and private keys do not belong there.
func parseKeys(content []byte) (keys jose.JSONWebKeySet, err error) {
	if err := json.Unmarshal(content, &keys); err != nil {
		return keys, errors.New("it is no JSON Web Key Set")
	}
	keys.Keys = slices.DeleteFunc(keys.Keys, func(k jose.JSONWebKey) bool { return !k.IsPublic() || !k.Valid() || k.Use == "enc" })
	if len(keys.Keys) == 0 {
		return keys, errors.New("it has no public key")
	}
	return keys, nil
}

// verify finds whose a JWT is. All that a refusal says is known to who holds the token.
func (s *state) verify(b *bearer) (identity string, expires time.Time, err error) {
	for _, i := range s.issuers {
		if known := i.keys.Load().verified.Get(b.hash); known != nil {
			return known.Value().identity, known.Value().expires, nil
		}
	}
	token, err := jwt.ParseSigned(b.token, algorithms())
	if err != nil {
		return "", time.Time{}, errors.New("the token is no JWT that is signed by a public key")
	}
	var claims jwt.Claims
	if err := token.UnsafeClaimsWithoutVerification(&claims); err != nil {
		return "", time.Time{}, errors.New("the claims of the JWT cannot be read")
	}
	for _, i := range s.issuers {
		if i.Issuer.Issuer == claims.Issuer {
			if identity, expires, err = i.verify(b, token); err == nil {
				return identity, expires, nil
			}
		}
	}
	if err == nil {
		err = fmt.Errorf("the issuer %.80q of the JWT is not in the policy", claims.Issuer)
	}
	return "", time.Time{}, err
}

func (i *issuer) verify(b *bearer, token *jwt.JSONWebToken) (identity string, expires time.Time, err error) {
	set := i.keys.Load()
	var claims jwt.Claims
	if err := token.Claims(&set.keys, &claims); err != nil {
		i.wanted.Store(true)
		return "", time.Time{}, fmt.Errorf("no key of %s has signed the JWT", i.Issuer.Issuer)
	}
	if claims.Expiry == nil {
		return "", time.Time{}, errors.New("the JWT has no \"exp\"; one without an end is not accepted")
	}
	expected := jwt.Expected{Issuer: i.Issuer.Issuer, AnyAudience: jwt.Audience{i.Audience}}
	if err := claims.ValidateWithLeeway(expected, leeway); err != nil {
		return "", time.Time{}, fmt.Errorf("the JWT is not valid: %s", strings.TrimPrefix(err.Error(), "go-jose/go-jose/jwt: validation failed, "))
	}
	if claims.Subject == "" || len(claims.Subject) > maxSubject {
		return "", time.Time{}, fmt.Errorf("the \"sub\" of the JWT has %d bytes; it must have 1 to %d", len(claims.Subject), maxSubject)
	}
	v := verified{identity: i.Name + ":" + claims.Subject, expires: claims.Expiry.Time().Add(leeway)}
	set.verified.Set(b.hash, v, time.Until(v.expires))
	return v.identity, v.expires, nil
}

// look reads the keys again when it is time, and reports whether there are others.
func (i *issuer) look(ctx context.Context, now time.Time) (changed bool) {
	before := i.keys.Load()
	switch {
	case i.file != nil:
		i.file.look(now)
	case i.reading != nil:
		select {
		case keys := <-i.reading:
			i.reading = nil
			if keys != nil && !sameKeys(keys.Keys, before.keys.Keys) {
				i.setKeys(*keys)
			}
		default:
		}
	case now.Sub(i.read) >= refreshEach || now.Sub(i.read) >= refreshSoon && i.wanted.Swap(false):
		i.read, i.reading = now, make(chan *jose.JSONWebKeySet, 1)
		go func(done chan<- *jose.JSONWebKeySet) { done <- i.fetch(ctx) }(i.reading)
	}
	return before != i.keys.Load()
}

func sameKeys(a, b []jose.JSONWebKey) bool {
	return slices.EqualFunc(a, b, func(a, b jose.JSONWebKey) bool {
		x, errX := a.Thumbprint(crypto.SHA256)
		y, errY := b.Thumbprint(crypto.SHA256)
		return errX == nil && errY == nil && slices.Equal(x, y) && a.KeyID == b.KeyID
	})
}

// fetch reads the keys from the issuer; nil if it has none to give.
func (i *issuer) fetch(ctx context.Context) *jose.JSONWebKeySet {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	keys, err := i.fetchKeys(ctx)
	if err != nil {
		if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			i.log.Warn("cannot read the keys of an issuer; those that were read last stay in use", zap.String("issuer", i.Issuer.Issuer), zap.Error(err))
		}
		return nil
	}
	return &keys
}

func (i *issuer) fetchKeys(ctx context.Context) (jose.JSONWebKeySet, error) {
	from := i.KeysURL
	if from == "" {
		content, err := get(ctx, strings.TrimSuffix(i.Issuer.Issuer, "/")+"/.well-known/openid-configuration")
		if err != nil {
			return jose.JSONWebKeySet{}, err
		}
		var discovered struct {
			Issuer string `json:"issuer"`
			Keys   string `json:"jwks_uri"`
		}
		if err := json.Unmarshal(content, &discovered); err != nil || discovered.Issuer != i.Issuer.Issuer || !isURL(discovered.Keys) {
			return jose.JSONWebKeySet{}, errors.New("the discovery document is not that of the issuer, or names no keys")
		}
		from = discovered.Keys
	}
	content, err := get(ctx, from)
	if err != nil {
		return jose.JSONWebKeySet{}, err
	}
	return parseKeys(content)
}

func get(ctx context.Context, from string) (content []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from, http.NoBody)
	if err != nil {
		return nil, err
	}
	client := http.Client{CheckRedirect: func(to *http.Request, via []*http.Request) error {
		if !isURL(to.URL.String()) || len(via) >= maxRedirects {
			return errors.New("redirected to where keys are not read from")
		}
		return nil
	}}
	reply, err := client.Do(request)
	if err != nil {
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err // without the URL, which may have a password
		}
		return nil, fmt.Errorf("GET from %s: %w", request.URL.Host, err)
	}
	defer func() { err = errors.Join(err, reply.Body.Close()) }()
	if reply.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET from %s: %s", request.URL.Host, reply.Status)
	}
	return io.ReadAll(io.LimitReader(reply.Body, maxKeys))
}
