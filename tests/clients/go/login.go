package main

import (
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"os"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	xdg "github.com/xdg-go/scram"
)

// Login is that of tests/clients/python/serving.py.
type Login struct {
	Bootstrap, Protocol                  string
	Trusted, Identity                    string // paths
	Mechanism, Username, Password, Token string // the token is a path
}

func (l *Login) tls() *tls.Config {
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(read(l.Trusted))
	config := &tls.Config{RootCAs: authorities}
	if l.Identity != "" {
		identity, err := tls.LoadX509KeyPair(l.Identity, l.Identity)
		if err != nil {
			panic(err)
		}
		config.Certificates = []tls.Certificate{identity}
	}
	return config
}

func read(path string) []byte {
	data, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	return data
}

func (l *Login) franz() []kgo.Opt {
	if l == nil {
		return nil
	}
	options := []kgo.Opt{kgo.DialTLSConfig(l.tls()), kgo.RequestRetries(1)}
	if l.Mechanism != "" {
		options = append(options, kgo.SASL(l.franzMechanism()))
	}
	return options
}

func (l *Login) franzMechanism() sasl.Mechanism {
	switch l.Mechanism {
	case "PLAIN":
		return plain.Auth{User: l.Username, Pass: l.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: l.Username, Pass: l.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: l.Username, Pass: l.Password}.AsSha512Mechanism()
	}
	return oauth.Auth{Token: string(read(l.Token))}.AsMechanism()
}

func (l *Login) sarama(config *sarama.Config) {
	if l == nil {
		return
	}
	config.Metadata.Retry.Max = 1
	config.Net.TLS.Enable = true
	config.Net.TLS.Config = l.tls()
	config.Net.SASL.Enable = l.Mechanism != ""
	config.Net.SASL.Mechanism = sarama.SASLMechanism(l.Mechanism)
	config.Net.SASL.User, config.Net.SASL.Password = l.Username, l.Password
	config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &saramaScram{mechanism: l.Mechanism} }
	if l.Token != "" {
		config.Net.SASL.TokenProvider = saramaToken(read(l.Token))
	}
}

type saramaToken string

func (t saramaToken) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(t)}, nil
}

// saramaScram is SCRAM of another package: Sarama leaves the exchange to its user.
type saramaScram struct {
	mechanism string
	exchange  *xdg.ClientConversation
}

func (s *saramaScram) Begin(username, password, authorizationID string) error {
	hash := xdg.HashGeneratorFcn(sha256.New)
	if s.mechanism == sarama.SASLTypeSCRAMSHA512 {
		hash = sha512.New
	}
	client, err := hash.NewClient(username, password, authorizationID)
	if err == nil {
		s.exchange = client.NewConversation()
	}
	return err
}

func (s *saramaScram) Step(challenge string) (string, error) { return s.exchange.Step(challenge) }

func (s *saramaScram) Done() bool { return s.exchange.Done() }
