package local

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// renewCheck is the longest time between two looks for certificates that are about to expire.
const renewCheck = time.Hour

// passOnWithin bounds one attempt to pass on renewed certificates.
const passOnWithin = 30 * time.Second

// RenewCertificates issues again all certificates of the federation that are about to expire at the given time, and returns how many.
func (f *Federation) RenewCertificates(now time.Time) (int, error) {
	renewed := 0
	var errs []error
	for _, c := range f.ControlPlanes() {
		n, err := c.RenewCertificates(now)
		renewed, errs = renewed+n, append(errs, err)
	}
	return renewed, errors.Join(errs...)
}

// keepCertificates renews certificates before they expire, until the context ends.
func (f *Federation) keepCertificates(ctx context.Context) {
	period := renewCheck
	if short := f.options.CertificateValidity; short > 0 {
		period = min(period, short/20)
	}
	logger := klog.FromContext(ctx)
	unknown := false // whether the parts do not know yet of certificates that were renewed
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		renewed, err := f.RenewCertificates(time.Now())
		if err != nil {
			logger.Error(err, "certificates cannot be renewed, will retry")
		}
		if renewed > 0 {
			logger.Info("renewed certificates", "count", renewed)
			unknown = f.parts != nil
		}
		if !unknown {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, passOnWithin)
		defer cancel()
		if err := f.parts.CertificatesRenewed(ctx); err != nil {
			logger.Error(err, "renewed certificates cannot be passed on, will retry")
			return
		}
		unknown = false
	}, period)
}
