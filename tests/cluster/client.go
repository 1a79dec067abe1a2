package main

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"
)

const (
	kubeconfigFile        = "kubeconfig"
	serverCertificateFile = "apiserver.crt"
	serviceAccountKeyFile = "service-account.key"
	tokenFile             = "tokens.csv"
)

// makeSecrets makes what is missing of the keys that the server wants to find, and returns the administrator's token.
func makeSecrets() (token string, err error) {
	key, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return "", err
	}
	if _, err := keep(serviceAccountKeyFile, key); err != nil {
		return "", err
	}
	tokens, err := keep(tokenFile, []byte(rand.Text()+",admin,admin,system:masters\n"))
	if err != nil {
		return "", err
	}
	token, _, _ = strings.Cut(string(tokens), ",")
	return token, nil
}

// keep returns what the file holds, which is content if it has not been there.
func keep(file string, content []byte) ([]byte, error) {
	there, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return content, os.WriteFile(file, content, 0o600)
	}
	return there, err
}

// administrator is how somebody who may do everything reaches the server.
func administrator(address, token string) *rest.Config {
	return &rest.Config{
		Host:            address,
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{CAFile: serverCertificateFile},
		// The controllers' requests are not held back.
		QPS: -1,
	}
}

// startLimit is far more than the start takes on a busy machine.
const startLimit = 5 * time.Minute

// waitReady returns a client when the server says that it is ready.
func waitReady(ctx context.Context, config *rest.Config) (kubernetes.Interface, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, errors.New("kube-apiserver does not get ready"))
	defer cancel()
	for {
		// Fails as long as the server has made no certificate.
		if client, err := kubernetes.NewForConfig(config); err == nil {
			if client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() == nil {
				return client, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// writeKubeconfig writes what other programs need to reach the server.
func writeKubeconfig(config *rest.Config) error {
	certificates, err := os.ReadFile(config.CAFile)
	if err != nil {
		return err
	}
	const name = "test-cluster"
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: config.Host, CertificateAuthorityData: certificates}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {Token: config.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}, kubeconfigFile)
}
