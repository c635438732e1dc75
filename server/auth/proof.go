package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// proof is a credential, which can be checked again.
type proof interface {
	// identify finds whose it is, and when it expires; zero: never.
	identify(s *state) (identity string, expires time.Time, err error)
}

// proofOf finds the credential of a call: a bearer token, or else what its connection has.
func proofOf(ctx context.Context) (proof, error) {
	switch sent := metadata.ValueFromIncomingContext(ctx, "authorization"); len(sent) {
	case 0:
	case 1:
		return bearerOf(sent[0])
	default:
		return nil, fmt.Errorf("the call has %d values of \"authorization\"; it may have one", len(sent))
	}
	if p, ok := peer.FromContext(ctx); ok {
		if found, ok := p.AuthInfo.(proof); ok {
			return found, nil
		}
	}
	return nil, errors.New("the call has no credential: send a token as \"authorization: Bearer TOKEN\", or connect with a client certificate")
}

// maxToken bounds a token, in bytes. Tokens of 43 letters are ours; JWTs are longer.
const maxToken = 16 << 10

// bearer is a token, of ours or of an issuer.
type bearer struct {
	hash  [sha256.Size]byte
	token string // of an issuer's tokens only
}

// bearerOf reads the header of a call (RFC 6750).
func bearerOf(header string) (*bearer, error) {
	scheme, token, found := strings.Cut(header, " ")
	switch {
	case !found || !strings.EqualFold(scheme, "bearer") || token == "":
		return nil, errors.New("the value of \"authorization\" is not \"Bearer TOKEN\"")
	case len(token) > maxToken:
		return nil, fmt.Errorf("the token has %d bytes; the limit is %d", len(token), maxToken)
	}
	b := &bearer{hash: sha256.Sum256([]byte(token))}
	if strings.Count(token, ".") == 2 {
		b.token = token
	}
	return b, nil
}

// identify implements proof. The hash is looked up: how long that takes tells nothing of other tokens.
func (b *bearer) identify(s *state) (identity string, expires time.Time, err error) {
	if known := s.tokens[b.hash]; known != nil {
		return "token:" + known.Name, known.Expires, nil
	}
	if b.token == "" || len(s.issuers) == 0 {
		return "", time.Time{}, errors.New("the token is unknown, or was revoked")
	}
	return s.verify(b)
}
