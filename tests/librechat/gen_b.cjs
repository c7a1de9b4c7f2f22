// LibreChat v0.8.6 and newer (@librechat/agents 3.9.2) against a running Redoma. See install.sh.
'use strict';

const { run } = require('./support.cjs');

require('./gen_b/execution.cjs');
require('./gen_b/files.cjs');
require('./gen_b/programmatic.cjs');
require('./gen_b/programmatic_bash.cjs');
require('./gen_b/routes.cjs');
require('./gen_b/access.cjs');
require('./gen_b/stateful.cjs');

run();
