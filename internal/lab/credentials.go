package lab

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"

	"github.com/kubenergy/kubenergy/internal/lab/kubelet"
)

// serviceIPRange is the range of cluster IPs. Its first address is the API server's Service.
const (
	serviceIPRange = "10.96.0.0/16"
	apiServiceIP   = "10.96.0.1"
)

// credentials contains the secrets of one cluster. Each Start generates new ones.
type credentials struct {
	servingCert  string // PEM, self-signed; also the CA of clients
	servingKey   string
	signingKey   string // of service account tokens
	tokenFile    string
	kubeconfig   string
	adminToken   string
	servingBytes []byte
}

// newCredentials writes all credentials except for the kubeconfig, which requires the port.
func newCredentials(dir, address string) (*credentials, error) {
	c := &credentials{
		servingCert: filepath.Join(dir, "apiserver.crt"),
		servingKey:  filepath.Join(dir, "apiserver.key"),
		signingKey:  filepath.Join(dir, "service-account.key"),
		tokenFile:   filepath.Join(dir, "tokens.csv"),
		kubeconfig:  filepath.Join(dir, kubeconfigName),
	}
	key, err := writeKey(c.servingKey)
	if err != nil {
		return nil, err
	}
	if c.servingBytes, err = selfSigned(key, address); err != nil {
		return nil, fmt.Errorf("creating the serving certificate: %w", err)
	}
	if err := os.WriteFile(c.servingCert, c.servingBytes, 0o600); err != nil {
		return nil, err
	}
	if _, err := writeKey(c.signingKey); err != nil {
		return nil, err
	}
	c.adminToken = rand.Text()
	line := fmt.Sprintf("%s,lab-admin,lab-admin,\"system:masters\"\n", c.adminToken)
	return c, os.WriteFile(c.tokenFile, []byte(line), 0o600)
}

// writeKubeconfig writes the administrator's kubeconfig and returns the corresponding rest.Config.
func (c *credentials) writeKubeconfig(host string) (*rest.Config, error) {
	config := kubelet.Kubeconfig(clientcmdapi.Cluster{Server: host, CertificateAuthorityData: c.servingBytes},
		clientcmdapi.AuthInfo{Token: c.adminToken}, "")
	if err := clientcmd.WriteToFile(*config, c.kubeconfig); err != nil {
		return nil, err
	}
	return &rest.Config{
		Host:            host,
		BearerToken:     c.adminToken,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.servingBytes},
		QPS:             -1, // disable the client-side rate limiter, which would distort measurements
	}, nil
}

// writeKey generates and writes a key. It is an elliptic key, because generating an RSA key takes a considerable
// part of the startup time.
func writeKey(path string) (crypto.Signer, error) {
	text, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return nil, err
	}
	key, err := keyutil.ParsePrivateKeyPEM(text)
	if err != nil {
		return nil, err
	}
	return key.(crypto.Signer), os.WriteFile(path, text, 0o600)
}

func selfSigned(key crypto.Signer, address string) ([]byte, error) {
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
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
	if address != "" {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(address))
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}
