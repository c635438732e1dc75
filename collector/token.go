package collector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	// maxToken bounds a token in bytes. Dispatchers take 64 KiB of headers.
	maxToken = 16 << 10

	// tokenReload is the least time between two looks at the file of a token.
	tokenReload = 500 * time.Millisecond
)

var errNoToken = fmt.Errorf("want a token of 1 to %d printable ASCII characters without spaces", maxToken)

// validateSecurity checks what proves to dispatchers who this program is. Its errors name no token.
func (c *Config) validateSecurity() error {
	switch {
	case c.TLS != nil && c.Credentials != nil:
		return errors.New("field TLS: Credentials are set, too: want one of them")
	case c.Token != "" && c.TokenFile != "":
		return errors.New("field TokenFile: Token is set, too: want one of them")
	case c.Token != "" && !isToken(c.Token):
		return fmt.Errorf("field Token: %w", errNoToken)
	case strings.HasPrefix(c.TokenFile, "wgl_"), strings.HasPrefix(c.TokenFile, "eyJ"):
		return errors.New("field TokenFile: it looks like a token: want the path of a file that holds one")
	}
	if c.hasToken() && c.isPlain() {
		for _, target := range c.Targets {
			if !isLocal(target) {
				return fmt.Errorf("field Targets: %q: %w: want TLS", target, errNotLocal)
			}
		}
	}
	return c.TLS.validate()
}

func (c *Config) hasToken() bool { return c.Token != "" || c.TokenFile != "" }

// isPlain reports whether connections are not encrypted.
func (c *Config) isPlain() bool {
	return c.TLS == nil && (c.Credentials == nil || c.Credentials.Info().SecurityProtocol == "insecure")
}

// security is how connections are made.
type security struct {
	options     []grpc.DialOption
	certificate func() []byte // that this program shows now; nil: none
}

func (c *Config) security() (s security, err error) {
	if err := c.validateSecurity(); err != nil {
		return s, err
	}
	log := c.Logger
	if log == nil {
		log = zap.NewNop()
	}
	transport := c.Credentials
	switch {
	case c.TLS != nil:
		files, err := newTLSTransport(*c.TLS, log)
		if err != nil {
			return s, err
		}
		if transport = files; c.TLS.CertFile != "" {
			s.certificate = files.certificate
		}
	case c.isPlain() && c.hasToken():
		transport = localTransport{insecure.NewCredentials()}
	case transport == nil:
		transport = insecure.NewCredentials()
	}
	s.options = []grpc.DialOption{grpc.WithTransportCredentials(transport)}
	if !c.hasToken() {
		return s, nil
	}
	latest, err := c.token(log)
	if err != nil {
		return security{}, err
	}
	s.options = append(s.options, grpc.WithPerRPCCredentials(bearer{latest: latest, overTLS: !c.isPlain()}))
	return s, nil
}

// token gives what returns the token of the time.
func (c *Config) token(log *zap.Logger) (latest func() string, err error) {
	token := c.Token
	if c.TokenFile != "" {
		read := func() (string, error) { return readToken(c.TokenFile) }
		file, err := newReloaded("the token file", tokenReload, log, read)
		if err != nil {
			return nil, err
		}
		if info, err := os.Stat(c.TokenFile); err == nil && info.Mode().IsRegular() {
			return file.latest, nil
		}
		token = file.good // of a pipe, which can be read once
	}
	return func() string { return token }, nil
}

func readToken(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("field TokenFile: %w", err)
	}
	defer file.Close() //nolint:errcheck // it was only read
	content, err := io.ReadAll(io.LimitReader(file, maxToken+2))
	if err != nil {
		return "", fmt.Errorf("field TokenFile: %w", err)
	}
	token := strings.TrimSpace(string(content))
	if !isToken(token) {
		return "", fmt.Errorf("field TokenFile: %s: %w", path, errNoToken)
	}
	return token, nil
}

func isToken(text string) bool {
	return text != "" && len(text) <= maxToken && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}

// isLocal reports whether a target is on this machine, as far as its name says.
func isLocal(target string) bool {
	if strings.HasPrefix(target, "unix:") || strings.HasPrefix(target, "unix-abstract:") {
		return true
	}
	if _, rest, hasScheme := strings.Cut(target, "://"); hasScheme {
		_, target, _ = strings.Cut(rest, "/") // behind the authority
	}
	host, _, err := net.SplitHostPort(target)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}

// bearer sends a token with each call.
type bearer struct {
	latest  func() string
	overTLS bool
}

var _ credentials.PerRPCCredentials = bearer{}

// GetRequestMetadata implements [credentials.PerRPCCredentials].
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.latest()}, nil
}

// RequireTransportSecurity implements [credentials.PerRPCCredentials]. Without TLS, localTransport is in its place.
func (b bearer) RequireTransportSecurity() bool { return b.overTLS }
