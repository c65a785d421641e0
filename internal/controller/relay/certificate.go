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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/kubenergy/kubenergy/internal/kube"
)

// AuthorityName is the ConfigMap that says by which certificate the HTTP API is known. Agents and schedulers mount it,
// each from their own namespace.
const (
	AuthorityName = "kubenergy-ca"
	authorityKey  = "ca.crt"
)

const (
	certificateLife  = 90 * 24 * time.Hour
	certificateRenew = 30 * 24 * time.Hour // before it ends, its successor is signed and told
	certificateTold  = 28 * 24 * time.Hour // after that it is served: also clients outside the cluster have it by then
	clockSlack       = time.Hour           // clocks of nodes differ
	// A bundle holds the certificates of replicas, their successors, and those that were there before: a client that
	// has read it a while ago still knows one of them.
	maxAuthorities = 64
)

// A Certificate is what the HTTP API is served with where it is given no other. It is its own
// authority, and is kept in a folder, so that a restart changes nothing for those who know it.
type Certificate struct {
	CertFile, KeyFile string

	names     []string
	pem       []byte
	successor *Certificate // nil: it is not time yet
}

func (s *Certificate) sign(now time.Time) error {
	certificate, key, err := sign(s.names, now, certificateLife)
	if err != nil {
		return fmt.Errorf("signing a certificate for the HTTP API: %w", err)
	}
	if err := s.keep(certificate, key); err != nil {
		return fmt.Errorf("keeping the certificate of the HTTP API: %w", err)
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

// read takes what the files hold, if that is a pair. After a power cut either may be empty, or older than the other.
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
		return nil, nil, nil //nolint:nilerr // no pair is no error: one is signed
	}
	s.pem = text
	return pair.Leaf, key, nil
}

// next is the successor's place beside a certificate.
func (s *Certificate) next() *Certificate {
	return &Certificate{CertFile: s.CertFile + ".next", KeyFile: s.KeyFile + ".next", names: s.names}
}

// Renew signs a successor when the certificate ends soon, and serves that once clients have had the time to read of it.
// One that lasts for longer than they do now, as those of before, has a successor at once. One that clients refuse
// anyway, as it is torn or has ended, is replaced now.
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
	case left > certificateRenew && left <= certificateLife:
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

// promote makes the successor the certificate. Where that is cut between two files, the next Renew finds a torn pair
// and does it again.
func (s *Certificate) promote(next *Certificate, key []byte) error {
	if err := s.keep(next.pem, key); err != nil {
		return err
	}
	return errors.Join(os.Remove(next.KeyFile), os.Remove(next.CertFile), os.RemoveAll(next.reportedFile()))
}

// reportedFile is as old as the first time that the bundle held the successor.
func (s *Certificate) reportedFile() string { return s.CertFile + ".told" }

// Published notes that the bundle holds the successor, if there is one.
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

// SignOnce returns the certificate of a folder, a new one if there is none that still holds, or none for these names.
func SignOnce(folder string, names []string, now time.Time) (*Certificate, error) {
	for _, pattern := range []string{".api.*", "api.*.new"} { // what a killed process has left, keys among it
		drafts, _ := filepath.Glob(filepath.Join(folder, pattern))
		for _, draft := range drafts {
			_ = os.Remove(draft) // it is in nothing's way
		}
	}
	s := &Certificate{
		CertFile: filepath.Join(folder, "api.crt"), KeyFile: filepath.Join(folder, "api.key"), names: names,
	}
	return s, s.Renew(now)
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

func sign(names []string, now time.Time, life time.Duration) (certificate, key []byte, err error) {
	pair, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	const serialBits = 127
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits))
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: now.Add(-clockSlack), NotAfter: now.Add(life),
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
	Client         client.Client // reads from the API server, not from a cache
	Namespace      string
	AgentNamespace string // may be the same
	Certificate    *Certificate
	Now            func() time.Time
	Log            *slog.Logger

	noAgents bool // and that was said
}

// Run renews and publishes until ctx ends. A user may remove what was published, and another replica may write over it.
func (a *Authority) Run(ctx context.Context) error {
	const every, retry = time.Minute, 5 * time.Second
	reported := ""
	for {
		wait := every
		if err := a.renewOnce(ctx); err != nil && ctx.Err() == nil {
			wait = retry
			if err.Error() != reported {
				reported = err.Error()
				a.Log.Warn("renewing or publishing the certificate of the HTTP API: trying again", "configMap",
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

// publishToAgents takes it for the absence of agents if it has no right to: the right comes with them.
func (a *Authority) publishToAgents(ctx context.Context) error {
	err := a.publish(ctx, a.AgentNamespace)
	none := apierrors.IsForbidden(err) || apierrors.IsNotFound(err)
	if none && !a.noAgents {
		a.Log.Info("agents in the cluster are not told the certificate of the HTTP API: there are none, or a right is "+
			"missing", "namespace", a.AgentNamespace, "configMap", AuthorityName, "error", err)
	}
	if a.noAgents = none; none {
		return nil
	}
	return err
}

// publish adds the certificate to the bundle as it was read: no replica's addition is lost.
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
