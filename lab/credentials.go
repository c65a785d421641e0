package lab

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// serviceIPRange is where cluster IPs come from; its first address is the API server's service.
const (
	serviceIPRange = "10.96.0.0/16"
	apiServiceIP   = "10.96.0.1"
)

// credentials are the secrets of one cluster. All are made anew by each Start.
type credentials struct {
	servingCert  string // PEM, self-signed: also what clients trust
	servingKey   string
	signingKey   string // of service account tokens
	tokenFile    string
	kubeconfig   string
	adminToken   string
	servingBytes []byte
}

// newCredentials writes everything but the kubeconfig, which needs the port.
func newCredentials(dir string) (*credentials, error) {
	c := &credentials{
		servingCert: filepath.Join(dir, "apiserver.crt"),
		servingKey:  filepath.Join(dir, "apiserver.key"),
		signingKey:  filepath.Join(dir, "service-account.key"),
		tokenFile:   filepath.Join(dir, "tokens.csv"),
		kubeconfig:  filepath.Join(dir, "kubeconfig"),
	}
	key, err := writeKey(c.servingKey)
	if err != nil {
		return nil, err
	}
	if c.servingBytes, err = selfSigned(key); err != nil {
		return nil, fmt.Errorf("making the serving certificate: %w", err)
	}
	if err := os.WriteFile(c.servingCert, c.servingBytes, 0o600); err != nil {
		return nil, err
	}
	if _, err := writeKey(c.signingKey); err != nil {
		return nil, err
	}
	token := make([]byte, 32)
	if _, err := rand.Read(token); err != nil {
		return nil, err
	}
	c.adminToken = hex.EncodeToString(token)
	line := fmt.Sprintf("%s,lab-admin,lab-admin,\"system:masters\"\n", c.adminToken)
	return c, os.WriteFile(c.tokenFile, []byte(line), 0o600)
}

// writeKubeconfig writes the administrator's kubeconfig and returns the same as a rest.Config.
func (c *credentials) writeKubeconfig(host string) (*rest.Config, error) {
	const name = "kubenergy-lab"
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters[name] = &clientcmdapi.Cluster{Server: host, CertificateAuthorityData: c.servingBytes}
	cfg.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: c.adminToken}
	cfg.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	cfg.CurrentContext = name
	if err := clientcmd.WriteToFile(*cfg, c.kubeconfig); err != nil { // mode 0600
		return nil, err
	}
	return &rest.Config{
		Host:            host,
		BearerToken:     c.adminToken,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.servingBytes},
		QPS:             -1, // a test that creates a thousand objects must not measure its own client's limiter
	}, nil
}

// KubeconfigOf writes a kubeconfig for a service account, so that a process of this machine has its rights and no
// others.
func (c *Cluster) KubeconfigOf(ctx context.Context, namespace, account, path string) error {
	token, err := c.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(3600))}},
		metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("asking for a token of %s: %w", account, err)
	}
	const name = "kubenergy-lab"
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters[name] = &clientcmdapi.Cluster{Server: c.config.Host, CertificateAuthorityData: c.creds.servingBytes}
	cfg.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	cfg.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	cfg.CurrentContext = name
	return clientcmd.WriteToFile(*cfg, path) // mode 0600
}

func writeKey(path string) (*ecdsa.PrivateKey, error) {
	// Elliptic: an RSA key takes a noticeable part of the whole start.
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	return key, os.WriteFile(path, block, 0o600)
}

func selfSigned(key *ecdsa.PrivateKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "kubenergy-lab"},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.AddDate(1, 0, 0),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA:                  true,
		BasicConstraintsValid: true,
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(apiServiceIP)},
		DNSNames: []string{
			"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc.cluster.local",
		},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}
