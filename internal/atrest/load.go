package atrest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
)

// transformers are those of one configuration.
type transformers struct {
	encryptionconfig.StaticTransformers
	cancel context.CancelFunc
	grace  time.Duration
}

// load makes the transformers. With a KMS plug-in it asks that for its state, and keeps asking in the background until they are closed.
func load(config *apiserverv1.EncryptionConfiguration) (*transformers, error) {
	text, err := encode(config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	loaded, err := loadText(ctx, text)
	if err != nil {
		cancel()
		return nil, withoutKeys(err)
	}
	return &transformers{loaded.Transformers, cancel, loaded.KMSCloseGracePeriod}, nil
}

// loadText passes the text through a pipe, because only files are read: keys must not be written to a disk.
func loadText(ctx context.Context, text []byte) (*encryptionconfig.EncryptionConfiguration, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	written := make(chan error, 1)
	go func() {
		_, err := writer.Write(text)
		written <- errors.Join(err, writer.Close())
	}()
	path := fmt.Sprintf("/dev/fd/%d", reader.Fd())
	loaded, err := encryptionconfig.LoadEncryptionConfig(ctx, path, false, "cellplane")
	if err != nil {
		_ = reader.Close() // what is not read would block the writer
		<-written
		return nil, errors.New(strings.ReplaceAll(err.Error(), path, "configuration"))
	}
	if err := <-written; err != nil {
		return nil, err
	}
	return loaded, nil
}

// close ends the connections to KMS plug-ins after requests under way.
func (t *transformers) close() {
	if t.grace == 0 {
		t.cancel()
		return
	}
	time.AfterFunc(t.grace, t.cancel)
}
