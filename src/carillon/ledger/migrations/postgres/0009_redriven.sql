-- Which action gave a route its last other chance: how far a redrive came is counted here, whoever asks and whenever.
-- part: api

CREATE TABLE redriven_routes (
    notification_id text COLLATE "C" NOT NULL,
    route_id        text COLLATE "C" NOT NULL,
    action_id       bigint NOT NULL,
    PRIMARY KEY (notification_id, route_id),
    FOREIGN KEY (notification_id, route_id) REFERENCES routes ON DELETE CASCADE
);

CREATE INDEX redriven_routes_action_idx ON redriven_routes (action_id);
