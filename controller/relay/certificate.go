package relay

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/renameio/v2"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// AuthorityName is the ConfigMap that says by which certificate the HTTP API is known. Agents and schedulers mount it.
const (
	AuthorityName = "kubenergy-ca"
	authorityKey  = "ca.crt"
)

const (
	certificateLife  = 10 * 365 * 24 * time.Hour
	certificateRenew = 365 * 24 * time.Hour // before it ends
	// A bundle holds the certificates of replicas, and of those that were there before: a client that has read it a
	// while ago still knows one of them.
	maxAuthorities = 8
)

// A Certificate is what the HTTP API is served with where it is given no other. It is its own
// authority, and is kept in a folder, so that a restart changes nothing for those who know it.
type Certificate struct {
	CertFile, KeyFile string
	pem               []byte
}

// SignOnce returns the certificate of a folder, a new one if there is none that will last, or none for these names.
func SignOnce(folder string, names []string, now time.Time) (*Certificate, error) {
	s := &Certificate{CertFile: filepath.Join(folder, "api.crt"), KeyFile: filepath.Join(folder, "api.key")}
	for _, pattern := range []string{".api.*", "api.*.new"} { // what a killed process has left, keys among it
		drafts, _ := filepath.Glob(filepath.Join(folder, pattern))
		for _, draft := range drafts {
			_ = os.Remove(draft) // it is in nothing's way
		}
	}
	kept, err := os.ReadFile(s.CertFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the certificate of the HTTP API: %w", err)
	}
	private, err := os.ReadFile(s.KeyFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the key of the HTTP API: %w", err)
	}
	// After a power cut either may be empty, or older than the other.
	if _, torn := tls.X509KeyPair(kept, private); torn == nil && lasting(kept, names, now) {
		s.pem = kept
		return s, nil
	}
	certificate, key, err := sign(names, now)
	if err != nil {
		return nil, fmt.Errorf("signing a certificate for the HTTP API: %w", err)
	}
	err = os.MkdirAll(folder, 0o700)
	if err == nil {
		err = replace(s.KeyFile, key)
	}
	if err == nil {
		err = replace(s.CertFile, certificate)
	}
	if err == nil {
		err = syncFolder(folder)
	}
	if err != nil {
		return nil, fmt.Errorf("keeping the certificate of the HTTP API: %w", err)
	}
	s.pem = certificate
	return s, nil
}

// replace writes a file that is this process' alone, whatever rights a volume gave to the one before.
// [renameio.WriteFile] would keep those.
func replace(file string, text []byte) error {
	draft, err := renameio.NewPendingFile(file, renameio.WithTempDir(filepath.Dir(file)),
		renameio.WithStaticPermissions(0o600))
	if err != nil {
		return err
	}
	defer func() { _ = draft.Cleanup() }() // nothing is left of it once it has replaced the file
	if _, err := draft.Write(text); err != nil {
		return err
	}
	return draft.CloseAtomicallyReplace()
}

// syncFolder returns once a power cut takes back no file that was renamed in the folder.
func syncFolder(folder string) error {
	dir, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// lasting reports whether a certificate is for these names and for a while.
func lasting(text []byte, names []string, now time.Time) bool {
	block, _ := pem.Decode(text)
	if block == nil {
		return false
	}
	c, err := x509.ParseCertificate(block.Bytes)
	return err == nil && slices.Equal(c.DNSNames, names) && now.Add(certificateRenew).Before(c.NotAfter) &&
		!now.Before(c.NotBefore)
}

func sign(names []string, now time.Time) (certificate, key []byte, err error) {
	pair, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	const serialBits = 127
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits))
	if err != nil {
		return nil, nil, err
	}
	// Clocks of nodes differ.
	const slack = time.Hour
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: now.Add(-slack), NotAfter: now.Add(certificateLife),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA:        true, BasicConstraintsValid: true, MaxPathLenZero: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, pair.Public(), pair)
	if err != nil {
		return nil, nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(pair)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), nil
}

// An Authority publishes by which certificate the HTTP API is known.
type Authority struct {
	Client      client.Client // reads from the API server, not from a cache
	Namespace   string
	Certificate *Certificate
	Now         func() time.Time
	Log         *slog.Logger
}

// Run publishes until ctx ends. A user may remove what was published, and another replica may write over it.
func (a *Authority) Run(ctx context.Context) error {
	const every, retry = 5 * time.Minute, 5 * time.Second
	told := ""
	for {
		wait := every
		if err := a.publish(ctx); err != nil && ctx.Err() == nil {
			wait = retry
			if err.Error() != told {
				told = err.Error()
				a.Log.Warn("publishing the certificate of the HTTP API: trying again", "configMap", AuthorityName,
					"error", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// publish adds the certificate to the bundle as it was read: no replica's addition is lost.
func (a *Authority) publish(ctx context.Context) error {
	m := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: AuthorityName}}
	_, err := controllerutil.CreateOrUpdate(ctx, a.Client, m, func() error {
		bundle := bundled([]byte(m.Data[authorityKey]), a.Certificate.pem, a.Now())
		if m.Data == nil {
			m.Data = map[string]string{}
		}
		m.Data[authorityKey] = string(bundle)
		return nil
	})
	return err
}

// bundled returns a bundle with own in it, and without what has expired or is no certificate.
func bundled(bundle, own []byte, now time.Time) []byte {
	var all [][]byte
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err == nil && now.Before(c.NotAfter) {
			all = append(all, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: block.Bytes}))
		}
	}
	if !slices.ContainsFunc(all, func(c []byte) bool { return bytes.Equal(c, own) }) {
		all = append(all, own)
	}
	return bytes.Join(all[max(0, len(all)-maxAuthorities):], nil)
}
