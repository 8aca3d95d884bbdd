package clustercache

import "errors"

var errDraft = errors.New("the store is being written")
