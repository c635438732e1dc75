package relay

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// Who proves to know the secret: a proof of one side is none of the other.
const (
	asSender = "waggle relay sender"
	asOwner  = "waggle relay owner"
)

const nonceBytes = 32

func newNonce() []byte {
	nonce := make([]byte, nonceBytes)
	_, _ = rand.Read(nonce) // it never fails
	return nonce
}

// prove is the proof that a side knows the secret, for one stream: both nonces are in it, and the key of its TLS connection. So
// certificates need not be checked: who stands between both sides has another connection with each.
func prove(secret []byte, side string, sender, owner, binding []byte) []byte {
	mac := hmac.New(sha256.New, secret)
	for _, part := range [][]byte{[]byte(side), sender, owner, binding} {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		mac.Write(size[:])
		mac.Write(part)
	}
	return mac.Sum(nil)
}

// proves reports whether a proof is right.
func proves(proof, secret []byte, side string, sender, owner, binding []byte) bool {
	return len(secret) > 0 && len(sender) == nonceBytes && len(owner) == nonceBytes &&
		hmac.Equal(proof, prove(secret, side, sender, owner, binding))
}

// bindingOf identifies the TLS connection of a stream (RFC 9266); nil without TLS.
func bindingOf(ctx context.Context) ([]byte, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil, nil
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if wrapped, is := p.AuthInfo.(interface{ TLS() credentials.TLSInfo }); is {
		info, ok = wrapped.TLS(), true
	}
	if !ok {
		return nil, nil
	}
	binding, err := info.State.ExportKeyingMaterial("EXPORTER-Channel-Binding", nil, nonceBytes)
	if err != nil {
		return nil, fmt.Errorf("identify the TLS connection: %w", err)
	}
	return binding, nil
}
