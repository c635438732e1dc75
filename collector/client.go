package collector

import (
	"context"

	"google.golang.org/grpc/credentials"
)

// version is that of this library; a release has the same.
const version = "0.1.0"

// clientName sends the name and version of this library with each call.
type clientName struct{}

var _ credentials.PerRPCCredentials = clientName{}

// GetRequestMetadata implements [credentials.PerRPCCredentials].
func (clientName) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"waggle-client": "waggle-go/" + version}, nil
}

// RequireTransportSecurity implements [credentials.PerRPCCredentials].
func (clientName) RequireTransportSecurity() bool { return false }
