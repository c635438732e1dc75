package cert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
)

// leaf is a certificate to be made for one dispatcher or client.
type leaf struct {
	file     string // the name of its file, without ".pem"
	identity string // as grants name it; of a client
	usage    x509.ExtKeyUsage
	dns      []string
	ips      []net.IP
	uris     []*url.URL
}

var (
	dnsName = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$`)
	// spiffeID is the form of the SPIFFE standard: a trust domain and segments of a path.
	spiffeID = regexp.MustCompile(`^spiffe://[a-z0-9._-]{1,255}(/[a-zA-Z0-9._-]+)+$`)
)

const (
	maxDNSName  = 253
	maxSPIFFEID = 2048
	// maxFile bounds the name of a file, with its ending, in bytes.
	maxFile = 200
)

// serverLeaf is the certificate of a dispatcher that is reached by names and addresses.
func serverLeaf(names []string) (*leaf, error) {
	l := &leaf{file: "server", usage: x509.ExtKeyUsageServerAuth}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			l.ips = append(l.ips, ip)
			continue
		}
		name = strings.ToLower(name)
		if !isDNSName(strings.TrimPrefix(name, "*.")) {
			return nil, fmt.Errorf("NAME %q is neither a DNS name nor an IP address; leave out scheme and port", name)
		}
		l.dns = append(l.dns, name)
	}
	return l, nil
}

// clientLeaf is the certificate of a client with that name.
func clientLeaf(name string) (*leaf, error) {
	l := &leaf{usage: x509.ExtKeyUsageClientAuth, identity: name}
	segments := strings.Split(name, "/")
	switch {
	case spiffeID.MatchString(name) && len(name) <= maxSPIFFEID && !slices.Contains(segments, ".") && !slices.Contains(segments, ".."):
		id, err := url.Parse(name)
		if err != nil {
			return nil, err
		}
		l.uris, l.file = []*url.URL{id}, strings.ReplaceAll(strings.TrimPrefix(name, "spiffe://"), "/", "_")
	case isDNSName(name):
		l.dns, l.file, l.identity = []string{name}, name, "dns:"+name
	default:
		return nil, fmt.Errorf("NAME %q is neither a SPIFFE id, as spiffe://example.org/collector/eu-1, nor a DNS name in lower case", name)
	}
	if l.file == "ca" || l.file == "server" || strings.HasSuffix(l.file, "-key") || len(l.file) > maxFile {
		return nil, fmt.Errorf("NAME %q makes the file %.80s.pem; it must not be ca or server, end in -key or be longer than %d bytes", name, l.file, maxFile)
	}
	return l, nil
}

func isDNSName(name string) bool { return len(name) <= maxDNSName && dnsName.MatchString(name) }

// files are where the certificate and its key are.
func (l *leaf) files(dir string) (certFile, keyFile string) {
	return filepath.Join(dir, l.file+".pem"), filepath.Join(dir, l.file+"-key.pem")
}

// String is what it is valid for.
func (l *leaf) String() string {
	names := slices.Clone(l.dns)
	for _, ip := range l.ips {
		names = append(names, ip.String())
	}
	for _, id := range l.uris {
		names = append(names, id.String())
	}
	return strings.Join(names, ", ")
}

// issue makes the certificate by the authority of dir. A renewal replaces only a certificate of the same kind, and of a
// client only one with the same name.
func (l *leaf) issue(dir string, now, until time.Time, renew bool) error {
	ca, err := readAuthority(dir)
	if err != nil {
		return err
	}
	if until.After(ca.cert.NotAfter) {
		return cli.Advise(fmt.Errorf("--days: %s is after the authority ends, on %s", day(until), day(ca.cert.NotAfter)),
			"say fewer --days, or renew the authority first: `waggle cert ca "+dir+" --renew`")
	}
	certFile, keyFile := l.files(dir)
	if renew {
		if err := l.mayReplace(certFile); err != nil {
			return err
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: commonName(l.String())},
		NotBefore: now.Add(-clockSkew), NotAfter: until,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{l.usage},
		DNSNames: l.dns, IPAddresses: l.ips, URIs: l.uris,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	if err != nil {
		return err
	}
	return writePair(certFile, keyFile, certPEM(der), key, renew)
}

// commonName is a name within the limit of X.509; programs look at the alternative names.
func commonName(name string) string {
	const most = 64
	return name[:min(len(name), most)]
}

// renewedNames are the names and addresses of the certificate that is renewed.
func renewedNames(dir string, renew bool) ([]string, error) {
	if !renew {
		return nil, cli.Usagef("NAME or IP is missing")
	}
	certFile, _ := (&leaf{file: "server"}).files(dir)
	old, err := readCertificates(certFile)
	if err != nil {
		return nil, fmt.Errorf("--renew: %w", err)
	}
	was := leaf{dns: old[0].DNSNames, ips: old[0].IPAddresses}
	return strings.Split(was.String(), ", "), nil
}

// mayReplace refuses to replace another one's certificate.
func (l *leaf) mayReplace(path string) error {
	old, err := readCertificates(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("--renew: %w", err)
	}
	was := leaf{dns: old[0].DNSNames, ips: old[0].IPAddresses, uris: old[0].URIs}
	if !slices.Contains(old[0].ExtKeyUsage, l.usage) || l.usage == x509.ExtKeyUsageClientAuth && was.String() != l.String() {
		return fmt.Errorf("--renew: %s is the certificate of %q, not of %q; use another directory", path, was.String(), l.String())
	}
	return nil
}
