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
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/renameio/v2"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/kubenergy/kubenergy/internal/kube"
)

// AuthorityName is the name of the ConfigMap with the CA certificates of the HTTP API. Agents and schedulers mount
// it from their own namespaces.
const (
	AuthorityName = "kubenergy-ca"
	authorityKey  = "ca.crt"
)

const (
	certificateLife  = 90 * 24 * time.Hour
	certificateRenew = 30 * 24 * time.Hour // time before expiry at which a successor is signed and published
	certificateTold  = 28 * 24 * time.Hour // time between its publication and its use
	clockSlack       = time.Hour           // tolerated clock skew
	// A bundle contains the current certificates of all replicas, their successors and their predecessors, so that
	// clients with an older bundle can still verify a replica.
	maxAuthorities = 64
)

// A Certificate is the self-signed certificate of the HTTP API if no other is configured. It is stored in a
// directory, so that clients do not have to update their bundle after a restart.
type Certificate struct {
	CertFile, KeyFile string

	names     []string
	pem       []byte
	successor *Certificate // nil if none is needed yet
}

func (s *Certificate) sign(now time.Time) error {
	certificate, key, err := sign(s.names, now)
	if err != nil {
		return fmt.Errorf("signing a certificate for the HTTP API: %w", err)
	}
	if err := s.keep(certificate, key); err != nil {
		return fmt.Errorf("storing the certificate of the HTTP API: %w", err)
	}
	return nil
}

func (s *Certificate) keep(certificate, key []byte) error {
	folder := filepath.Dir(s.CertFile)
	err := os.MkdirAll(folder, 0o700)
	if err == nil {
		err = replace(s.KeyFile, key)
	}
	if err == nil {
		err = replace(s.CertFile, certificate)
	}
	if err == nil {
		err = syncFolder(folder)
	}
	if err == nil {
		s.pem = certificate
	}
	return err
}

// read loads the certificate and key files. It returns no error if they do not match or are empty, e.g. after a
// power failure.
func (s *Certificate) read() (leaf *x509.Certificate, key []byte, err error) {
	text, err := os.ReadFile(s.CertFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("reading the certificate of the HTTP API: %w", err)
	}
	if key, err = os.ReadFile(s.KeyFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("reading the key of the HTTP API: %w", err)
	}
	pair, torn := tls.X509KeyPair(text, key)
	if torn != nil || !slices.Equal(pair.Leaf.DNSNames, s.names) {
		return nil, nil, nil //nolint:nilerr // an invalid pair is replaced, so it is not an error
	}
	s.pem = text
	return pair.Leaf, key, nil
}

// next returns the successor with its file names.
func (s *Certificate) next() *Certificate {
	return &Certificate{CertFile: s.CertFile + ".next", KeyFile: s.KeyFile + ".next", names: s.names}
}

// Renew signs a successor when the certificate expires soon, and replaces the certificate with it after clients had
// time to read it. An expired or damaged certificate is replaced immediately because clients reject it anyway.
func (s *Certificate) Renew(now time.Time) error {
	leaf, _, err := s.read()
	if err != nil {
		return err
	}
	next := s.next()
	successor, key, err := next.read()
	if err != nil {
		return err
	}
	s.successor = nil
	left := time.Duration(0)
	if holds(leaf, now) {
		left = leaf.NotAfter.Sub(now)
	}
	switch good := holds(successor, now); {
	case left > certificateRenew:
		return nil
	case left == 0 && !good:
		return s.sign(now)
	case left == 0, good && next.reported(now):
		return s.promote(next, key)
	case !good || successor.NotAfter.Sub(now) <= certificateRenew:
		_ = os.Remove(next.reportedFile())
		err = next.sign(now)
	}
	if err == nil {
		s.successor = next
	}
	return err
}

func holds(leaf *x509.Certificate, now time.Time) bool {
	return leaf != nil && !now.Before(leaf.NotBefore) && now.Before(leaf.NotAfter)
}

// promote replaces the certificate with the successor. If it is interrupted between two files, the next call of
// Renew detects an invalid pair and repeats it.
func (s *Certificate) promote(next *Certificate, key []byte) error {
	if err := s.keep(next.pem, key); err != nil {
		return err
	}
	return errors.Join(os.Remove(next.KeyFile), os.Remove(next.CertFile), os.RemoveAll(next.reportedFile()))
}

// reportedFile returns the name of the file with the time of the successor's first publication as its modification
// time.
func (s *Certificate) reportedFile() string { return s.CertFile + ".told" }

// Published records that the bundle contains the successor, if there is one.
func (s *Certificate) Published(now time.Time) error {
	if s.successor == nil {
		return nil
	}
	file := s.successor.reportedFile()
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	return errors.Join(replace(file, nil), os.Chtimes(file, now, now))
}

func (s *Certificate) reported(now time.Time) bool {
	info, err := os.Stat(s.reportedFile())
	return err == nil && now.Sub(info.ModTime()) >= certificateTold
}

// SignOnce returns the certificate in a directory. It signs a new one if there is no valid certificate for the
// given names.
func SignOnce(folder string, names []string, now time.Time) (*Certificate, error) {
	// Temporary files of killed processes may contain keys.
	drafts, _ := filepath.Glob(filepath.Join(folder, ".api.*"))
	for _, draft := range drafts {
		_ = os.Remove(draft) // best effort
	}
	s := &Certificate{
		CertFile: filepath.Join(folder, "api.crt"), KeyFile: filepath.Join(folder, "api.key"), names: names,
	}
	return s, s.Renew(now)
}

// replace writes a file atomically with permissions for its owner only, regardless of the permissions of an
// existing file. [renameio.WriteFile] would preserve the existing permissions.
func replace(file string, text []byte) error {
	draft, err := renameio.NewPendingFile(file, renameio.WithTempDir(filepath.Dir(file)),
		renameio.WithStaticPermissions(0o600))
	if err != nil {
		return err
	}
	defer func() { _ = draft.Cleanup() }() // no-op after the file has been replaced
	if _, err := draft.Write(text); err != nil {
		return err
	}
	return draft.CloseAtomicallyReplace()
}

// syncFolder makes renames in a directory durable.
func syncFolder(folder string) error {
	dir, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func sign(names []string, now time.Time) (certificate, key []byte, err error) {
	pair, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: now.Add(-clockSlack), NotAfter: now.Add(certificateLife),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA:        true, BasicConstraintsValid: true, MaxPathLenZero: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, pair.Public(), pair)
	private, errKey := x509.MarshalPKCS8PrivateKey(pair)
	if err = errors.Join(err, errKey); err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), nil
}

// An Authority publishes the CA certificates of the HTTP API.
type Authority struct {
	Client         client.Client // must not read from a cache
	Namespace      string
	AgentNamespace string // may be equal to Namespace
	Certificate    *Certificate
	Now            func() time.Time
	Log            *slog.Logger

	noAgents bool // there are no agents, and this was logged
}

// Run renews and publishes the certificate periodically until ctx is done, because the ConfigMap may be deleted by
// users or overwritten by another replica. It always returns nil.
func (a *Authority) Run(ctx context.Context) error {
	const every, retry = time.Minute, 5 * time.Second
	reported := ""
	for {
		wait := every
		if err := a.renewOnce(ctx); err != nil && ctx.Err() == nil {
			wait = retry
			if err.Error() != reported {
				reported = err.Error()
				a.Log.Warn("Failed to renew or publish the certificate of the HTTP API, retrying", "configMap",
					AuthorityName, "error", err)
			}
		}
		if !kube.Pause(ctx, wait) {
			return nil
		}
	}
}

func (a *Authority) renewOnce(ctx context.Context) error {
	err := errors.Join(a.Certificate.Renew(a.Now()), a.publish(ctx, a.Namespace))
	if a.AgentNamespace != a.Namespace {
		err = errors.Join(err, a.publishToAgents(ctx))
	}
	if err == nil {
		err = a.Certificate.Published(a.Now())
	}
	return err
}

// publishToAgents publishes the certificate in the namespace of the agents. A missing permission is interpreted as
// the absence of agents, because it is granted when they are installed.
func (a *Authority) publishToAgents(ctx context.Context) error {
	err := a.publish(ctx, a.AgentNamespace)
	none := apierrors.IsForbidden(err) || apierrors.IsNotFound(err)
	if none && !a.noAgents {
		a.Log.Info("Not publishing the certificate of the HTTP API to agents: there are none, or a permission is "+
			"missing", "namespace", a.AgentNamespace, "configMap", AuthorityName, "error", err)
	}
	if a.noAgents = none; none {
		return nil
	}
	return err
}

// publish adds the certificate to the bundle in a ConfigMap. Conflicts ensure that no addition of another replica
// is lost.
func (a *Authority) publish(ctx context.Context, namespace string) error {
	m := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: AuthorityName}}
	_, err := controllerutil.CreateOrUpdate(ctx, a.Client, m, func() error {
		bundle := bundled([]byte(m.Data[authorityKey]), a.Certificate.pem, a.Now())
		if next := a.Certificate.successor; next != nil {
			bundle = bundled(bundle, next.pem, a.Now())
		}
		if m.Data == nil {
			m.Data = map[string]string{}
		}
		m.Data[authorityKey] = string(bundle)
		return nil
	})
	return err
}

// bundled returns the bundle with own added and without expired or invalid certificates.
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
