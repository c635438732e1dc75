package auth

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// ErrInvalid is the error of a policy that cannot be used. It names the field, the value and the limit.
var ErrInvalid = errors.New("invalid policy")

// maxName bounds the name of a token or an issuer, in bytes.
const maxName = 64

// Policy is who may do what: the content of the policy file.
type Policy struct {
	// Tokens are the bearer tokens. The identity of one is "token:" and its name.
	Tokens []Token `yaml:"tokens,omitempty"`
	// JWT are the issuers whose tokens count.
	JWT []Issuer `yaml:"jwt,omitempty"`
	// Grants give identities roles. An identity may do what any of its grants allows.
	Grants []Grant `yaml:"grants,omitempty"`
}

// Token is a bearer token. The policy keeps its hash only.
type Token struct {
	// Name is 1 to 64 of a-z, 0-9, '.', '_' and '-'. Several tokens may have it: so an old one counts beside a new one.
	Name string `yaml:"name"`
	// SHA256 is the hash of the token in hexadecimal digits: 64 of them.
	SHA256 string `yaml:"sha256"`
	// Expires is when the token ends. Zero: never.
	Expires time.Time `yaml:"expires,omitempty"`
}

// Issuer signs JWTs (RFC 7519). The identity of one is the issuer's name, a colon, and the token's subject.
type Issuer struct {
	// Name is as that of a [Token], and unique. Default "jwt".
	Name string `yaml:"name,omitempty"`
	// Issuer and Audience are what the claims "iss" and "aud" must have.
	Issuer   string `yaml:"issuer"`
	Audience string `yaml:"audience"`
	// The header of a token must name its key by "kid".
	//
	// KeysFile and KeysURL are where the issuer's keys are, as a JSON Web Key Set (RFC 7517). At most one is set; without
	// any, the issuer's discovery document (OpenID Connect Discovery 1.0) names the URL.
	KeysFile string `yaml:"keys_file,omitempty"`
	KeysURL  string `yaml:"keys_url,omitempty"`
}

// Grant gives identities a role. The other fields narrow it; an empty one narrows nothing.
type Grant struct {
	// Identity is a pattern: "token:eu-*", "spiffe://example.org/*", "dns:NAME", "jwt:SUBJECT", "uid:1000". Each * stands
	// for any characters.
	Identity string `yaml:"identity"`
	// Role is what the identity may do.
	Role Role `yaml:"role"`
	// Collectors are patterns of collector ids, and Pools are those that it may fetch from. For collectors only.
	Collectors []string `yaml:"collectors,omitempty,flow"`
	Pools      []string `yaml:"pools,omitempty,flow"`
	// Sources are prefixes of source ids. For producers, operators and viewers only.
	Sources []string `yaml:"sources,omitempty,flow"`
}

// Parse reads a policy. The error wraps [ErrInvalid].
func Parse(content []byte) (*Policy, error) {
	p := new(Policy)
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	if err := decoder.Decode(p); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return p, nil
}

func (p *Policy) check() error {
	hashes := make(map[string]bool)
	for i := range p.Tokens {
		t := &p.Tokens[i]
		if err := checkName(t.Name, map[string]bool{}); err != nil {
			return fmt.Errorf("tokens[%d].name %w", i, err)
		}
		if hash, err := hex.DecodeString(t.SHA256); err != nil || len(hash) != sha256.Size {
			return fmt.Errorf("tokens[%d].sha256 of %q must be 64 hexadecimal digits", i, t.Name)
		}
		if t.SHA256 = strings.ToLower(t.SHA256); hashes[t.SHA256] {
			return fmt.Errorf("tokens[%d].sha256 of %q is that of another token, too", i, t.Name)
		}
		hashes[t.SHA256] = true
	}
	names := map[string]bool{"token": true, "dns": true, "spiffe": true, "uid": true}
	for i := range p.JWT {
		if err := p.JWT[i].check(names); err != nil {
			return fmt.Errorf("jwt[%d].%w", i, err)
		}
	}
	for i := range p.Grants {
		if err := p.Grants[i].check(names); err != nil {
			return fmt.Errorf("grants[%d].%w", i, err)
		}
	}
	return nil
}

func checkName(name string, used map[string]bool) error {
	switch {
	case name == "" || len(name) > maxName || strings.ContainsFunc(name, func(r rune) bool { return !isNameRune(r) }):
		return fmt.Errorf("is %q; it must be 1 to %d of a-z, 0-9, '.', '_' and '-'", name, maxName)
	case used[name]:
		return fmt.Errorf("%q is taken", name)
	}
	used[name] = true
	return nil
}

func isNameRune(r rune) bool {
	return 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '.' || r == '_' || r == '-'
}

func (i *Issuer) check(names map[string]bool) error {
	if i.Name == "" {
		i.Name = "jwt"
	}
	if err := checkName(i.Name, names); err != nil {
		return fmt.Errorf("name %w", err)
	}
	switch {
	case i.Issuer == "":
		return errors.New("issuer is empty; it must be what the claim \"iss\" has")
	case i.Audience == "":
		return errors.New("audience is empty; it must be what the claim \"aud\" has")
	case i.KeysFile != "" && i.KeysURL != "":
		return errors.New("keys_file and keys_url are both set; at most one may be")
	case i.KeysURL != "" && !isURL(i.KeysURL):
		return fmt.Errorf("keys_url is %q; it must be a URL with https, or http on this machine", i.KeysURL)
	case i.KeysFile == "" && i.KeysURL == "" && !isURL(i.Issuer):
		return fmt.Errorf("issuer is %q, which has no discovery document; set keys_file or keys_url", i.Issuer)
	}
	return nil
}

// isURL reports whether keys may be read from there: who can change what comes decides who may do what.
func isURL(s string) bool {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" {
		return false
	}
	return u.Scheme == "https" || u.Scheme == "http" && isLoopback(u.Hostname())
}

func (g *Grant) check(kinds map[string]bool) error {
	kind, _, _ := strings.Cut(g.Identity, ":")
	switch {
	case g.Identity == "":
		return errors.New("identity is empty; it must be a pattern, as token:NAME or spiffe://example.org/*")
	case !slices.Contains(Roles(), g.Role):
		return fmt.Errorf("role is %q; it must be one of %v", g.Role, Roles())
	case g.Role != Collector && len(g.Collectors)+len(g.Pools) > 0:
		return fmt.Errorf("collectors and pools are for the role %s, not for %s", Collector, g.Role)
	case (g.Role == Collector || g.Role == Admin) && len(g.Sources) > 0:
		return fmt.Errorf("sources is for producers, operators and viewers, not for the role %s", g.Role)
	case !kinds[kind] && !strings.Contains(kind, "*"):
		return fmt.Errorf("identity is %q; it must begin with token:, spiffe://, dns:, uid:, or the name of an issuer and a colon", g.Identity)
	}
	for _, list := range [][]string{g.Collectors, g.Pools, g.Sources} {
		if slices.Contains(list, "") {
			return errors.New("collectors, pools and sources must hold no empty text; leave the field out for all")
		}
	}
	return nil
}

// String says what a grant gives.
func (g *Grant) String() string {
	text := fmt.Sprintf("grant of %s to %s", g.Role, g.Identity)
	for _, list := range []struct {
		name   string
		values []string
	}{{"collectors", g.Collectors}, {"pools", g.Pools}, {"sources", g.Sources}} {
		if len(list.values) > 0 {
			text += ", " + list.name + " " + strings.Join(list.values, " ")
		}
	}
	return text
}

// GrantsTo are the grants to an identity.
func (p *Policy) GrantsTo(identity string) []*Grant {
	var grants []*Grant
	for i := range p.Grants {
		if matches(p.Grants[i].Identity, identity) {
			grants = append(grants, &p.Grants[i])
		}
	}
	return grants
}

// matches reports whether text is of a pattern in which each * stands for any characters.
func matches(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(text) < len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		_, rest, found := strings.Cut(text, part)
		if !found {
			return false
		}
		text = rest
	}
	return true
}

// tokenPrefix is how tokens begin, so that those who look for leaked secrets find them.
const tokenPrefix = "wgl_"

// NewToken makes a token of 256 random bits, and the hash by which a policy knows it.
func NewToken() (token, hash string) {
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // it never fails
	token = tokenPrefix + base64.RawURLEncoding.EncodeToString(secret[:])
	return token, HashToken(token)
}

// HashToken is the hash by which a policy knows a token.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}
