-- What `carillon ledger tidy` removes of the part queues, once every table is empty.
DROP TABLE job_effects;
DROP TABLE job_logs;
